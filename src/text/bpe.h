// Byte-level BPE ("gpt2" vocabularies): a pre-tokeniser cuts the text into words, and within a word the pair with the
// lowest merge rank is joined until none is left. Made by Tokenizer::load; immutable.
#pragma once

#include <memory>

#include "text/tokenizer.h"

namespace quarrel {

std::unique_ptr<Tokenizer> load_bpe(const GgufFile& file, Log& log);

}  // namespace quarrel
