// SentencePiece's unigram model ("t5" vocabularies): of all ways to cut the normalised text into pieces, the one with
// the highest sum of scores. Made by Tokenizer::load; immutable.
#pragma once

#include <memory>

#include "text/tokenizer.h"

namespace quarrel {

std::unique_ptr<Tokenizer> load_unigram(const GgufFile& file, Log& log);

}  // namespace quarrel
