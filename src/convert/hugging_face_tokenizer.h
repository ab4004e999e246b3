// The tokenizer of a model's folder as GGUF has it: WordPiece ("bert") from tokenizer.json or vocab.txt, byte-level BPE
// ("gpt2") and BPE with byte tokens in the manner of SentencePiece ("llama") from tokenizer.json. Stateless.
#pragma once

#include <cstdint>
#include <filesystem>

#include "base/log.h"
#include "gguf/writer.h"

namespace quarrel {

// Puts tokens, kinds, merges or scores, special ids and the chat template. The vocabulary is filled up to `rows`, the
// rows of the embedding table, with unused tokens. Throws Error: not_found without a tokenizer, bad_file, and
// unsupported for another algorithm or a way of cutting text that nobody here knows.
void put_tokenizer(const std::filesystem::path& folder, std::uint32_t rows, GgufWriter& writer, Log& log);

}  // namespace quarrel
