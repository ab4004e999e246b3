// SentencePiece's merging algorithm ("llama" vocabularies): characters are joined pairwise, the best-scored token
// first, and what no token covers falls back to bytes. Made by Tokenizer::load; immutable.
#pragma once

#include <memory>

#include "text/tokenizer.h"

namespace quarrel {

std::unique_ptr<Tokenizer> load_spm(const GgufFile& file, Log& log);

}  // namespace quarrel
