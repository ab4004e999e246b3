// Toy models behind a session, the ways its tests want them.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "backend/create.h"
#include "session/generation_stream.h"
#include "session/loaded_model.h"
#include "support/temp_dir.h"
#include "support/toy_model.h"

namespace quarrel::test {

// Keeps what was warned of, by any thread.
class KeptLog : public Log {
 public:
  void write(LogLevel level, std::string_view line) override {
    const std::scoped_lock lock(mutex_);
    if (level >= LogLevel::warning) lines.emplace_back(line);
  }
  std::vector<std::string> lines;  // to be looked at when nobody writes

 private:
  std::mutex mutex_;
};

inline std::shared_ptr<LoadedModel> load_toy(const std::filesystem::path& path, LoadOptions options = {}) {
  KeptLog log;
  if (options.executor.sequences == 1) options.executor.sequences = 6;
  return LoadedModel::load(path, make_device({.backend = "cpu", .threads = 2}), options, log);
}

// A chatting toy, and asks to it that go on for as long as they may.
class ChatToy : public testing::Test {
 protected:
  ChatToy() : model_(load_toy(write_toy_chat(folder_.path(), {.context = 512}))) {}

  Ask ask(std::int32_t max_tokens) const {
    Ask made{.prompt = std::string("Hello there"), .seed = 7, .max_tokens = max_tokens};
    made.sampling.temperature = 1.0f;
    made.stop_tokens.emplace();
    return made;
  }
  std::string decode(const std::vector<TokenId>& tokens, bool special = false) const {
    return model_->tokenizer()->decode(tokens, special);
  }

  TempDir folder_;
  std::shared_ptr<LoadedModel> model_;
};

// Waits for what another thread does soon; false: it did not.
template <typename Condition>
bool eventually(const Condition& condition) {
  for (int i = 0; i < 60'000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

}  // namespace quarrel::test
