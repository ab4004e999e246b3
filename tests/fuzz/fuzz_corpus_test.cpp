// Runs every file of the corpus through its target once: what fuzzing found stays found, with every compiler and
// sanitizer.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include "fuzz/targets.h"

namespace quarrel::fuzz {
namespace {

namespace fs = std::filesystem;

struct Target {
  const char* name;
  void (*run)(Input);
  const char* more;  // a folder of the test data whose files are inputs too
};

std::vector<fs::path> files_of(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.is_regular_file()) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

class FuzzCorpus : public testing::TestWithParam<Target> {};

TEST_P(FuzzCorpus, Replays) {
  const Target& target = GetParam();
  std::vector<fs::path> files = files_of(fs::path(QUARREL_FUZZ_CORPUS) / target.name);
  ASSERT_FALSE(files.empty());
  if (target.more != nullptr) {
    const std::vector<fs::path> more = files_of(fs::path(QUARREL_TEST_DATA) / target.more);
    files.insert(files.end(), more.begin(), more.end());
  }
  for (const fs::path& path : files) {
    SCOPED_TRACE(path.string());
    std::ifstream file(path, std::ios::binary);
    const std::vector<char> bytes(std::istreambuf_iterator<char>(file), {});
    EXPECT_NO_THROW(target.run(std::as_bytes(std::span(bytes))));
  }
}

// The empty input and every single byte reach each target whatever the corpus holds.
TEST_P(FuzzCorpus, ShortestInputs) {
  EXPECT_NO_THROW(GetParam().run({}));
  for (unsigned value = 0; value < 256; ++value) {
    const auto byte = static_cast<std::byte>(value);
    EXPECT_NO_THROW(GetParam().run({&byte, 1})) << value;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Targets, FuzzCorpus,
    testing::Values(Target{"gguf", gguf, nullptr}, Target{"safetensors", safetensors, nullptr},
                    Target{"tokenizer_bpe", tokenizer_bpe, nullptr}, Target{"tokenizer_spm", tokenizer_spm, nullptr},
                    Target{"tokenizer_wordpiece", tokenizer_wordpiece, nullptr},
                    Target{"tokenizer_unigram", tokenizer_unigram, nullptr},
                    Target{"template_compile_render", template_compile_render, "template"},
                    Target{"quant_decode", quant_decode, nullptr}, Target{"ssm", ssm, nullptr},
                    Target{"request_body", request_body, nullptr}, Target{"http_connection", http_connection, nullptr},
                    Target{"websocket_frames", websocket_frames, nullptr}, Target{"http_head", http_head, nullptr},
                    Target{"socket_message", socket_message, nullptr}, Target{"key_file", key_file, nullptr},
                    Target{"settings_file", settings_file, nullptr}),
    [](const auto& one) { return std::string(one.param.name); });

}  // namespace
}  // namespace quarrel::fuzz
