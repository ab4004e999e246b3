// BERT's WordPiece: text is normalised and cut into words, each word into the longest known pieces from its left. Made
// by Tokenizer::load; immutable.
#pragma once

#include <memory>

#include "text/tokenizer.h"

namespace quarrel {

std::unique_ptr<Tokenizer> load_wordpiece(const GgufFile& file, Log& log);

}  // namespace quarrel
