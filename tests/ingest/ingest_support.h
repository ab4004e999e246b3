// What tests of an ingestion feed it: texts, and vectors that need no model; and what a request does with a journal.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "ingest/ingestion.h"
#include "ingest/journal.h"

namespace quarrel::test {

inline constexpr std::int32_t kFakeWidth = 3;  // of the vectors

inline std::vector<float> vector_of(const std::string& text) {
  const auto hash = static_cast<float>(std::hash<std::string>{}(text) % 1000);
  return {hash, static_cast<float>(text.size()), 1.0f};
}

inline std::vector<std::string> many_texts(std::size_t count) {
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < count; ++i) texts.push_back("text " + std::to_string(i));
  return texts;
}

// Answers on a thread of its own, or at once.
class FakeEmbedder final : public TextEmbedder {
 public:
  bool at_once = true;
  std::string unbearable;  // a text that fails
  std::uint64_t texts = 0;
  std::function<void()> on_start = {};     // before a batch is embedded
  std::function<void()> on_embedded = {};  // after that, before it is told

  std::int32_t dimension() const override { return kFakeWidth; }
  std::unique_ptr<Work> start(std::span<const std::string> given, std::vector<std::span<float>> places,
                              std::function<void(Outcome)> done) override {
    texts += given.size();
    if (on_start) on_start();
    auto embed = [this, given = std::vector<std::string>(given.begin(), given.end()), places, done] {
      for (std::size_t i = 0; i < given.size(); ++i) {
        if (given[i] == unbearable) {
          done({.error = std::make_exception_ptr(Error(ErrorKind::bad_file, "the numbers are not finite"))});
          return;
        }
        std::ranges::copy(vector_of(given[i]), places[i].begin());
      }
      if (on_embedded) on_embedded();
      done({.tokens = 2 * given.size()});
    };
    auto work = std::make_unique<Thread>();
    if (at_once) {
      embed();
    } else {
      work->thread = std::jthread(std::move(embed));
    }
    return work;
  }

 private:
  struct Thread final : Work {
    std::jthread thread;
  };
};

class ListSource final : public TextSource {
 public:
  std::vector<std::string> texts;
  bool once = false;

  bool next(TextRecord& record) override {
    if (counts_.texts == texts.size()) return false;
    record = {.text = texts[counts_.texts], .source = "list", .position = "{}"};
    ++counts_.texts;
    return true;
  }
  bool rewind() override {
    if (once) return false;
    counts_ = {};
    return true;
  }
  const SourceCounts& counts() const noexcept override { return counts_; }

 private:
  SourceCounts counts_;
};

inline TextKey numbered_key(std::uint64_t number) { return {.high = number * 77, .low = number << 3}; }

// As a request does that stores the texts [from, to), all of them new.
inline void store_numbered(Journal& journal, std::uint64_t from, std::uint64_t to) {
  if (journal.is_new()) journal.begin({});
  std::vector<std::uint32_t> ids;
  for (std::uint64_t i = from; i < to; ++i) {
    const Journal::Claimed claimed = journal.claim(numbered_key(i));
    EXPECT_EQ(claimed.claim, Journal::Claim::send) << i;
    ids.push_back(claimed.id);
  }
  journal.acknowledged(journal.sending(ids));
  journal.looked_for_all({});
}

}  // namespace quarrel::test
