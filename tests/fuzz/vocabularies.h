// Small vocabularies for the tokenizer targets: fixed ones of every algorithm, and one spelled by a fuzzer's bytes.
// Tokenizers are immutable: any thread may use them.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace quarrel::fuzz {

struct FuzzVocabulary {
  std::unique_ptr<Tokenizer> tokenizer;
  bool keeps_bytes = false;   // any text comes back as it was …
  bool loses_blocks = false;  // … unless it holds "▁", which comes back as a space
};

// Every algorithm's vocabularies differ in what chooses its paths: the pre-tokeniser, the handling of spaces, the case.
std::vector<FuzzVocabulary> bpe_vocabularies();
std::vector<FuzzVocabulary> spm_vocabularies();
std::vector<FuzzVocabulary> wordpiece_vocabularies();
std::vector<FuzzVocabulary> unigram_vocabularies();

// A GGUF file with a vocabulary for `model` ("gpt2", "llama" …) that `lines` spell, one token a line: a digit for its
// kind, a character for its score, its spelling. A line that begins with 'm' is a merge, one with 'p' names the
// pre-tokeniser, one with 'c' is the normalisation table.
std::vector<std::byte> spelled_vocabulary(std::string_view model, std::string_view lines);

}  // namespace quarrel::fuzz
