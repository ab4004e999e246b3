// What was typed before, in memory and in its file.

#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

#include "app/line_history.h"
#include "support/temp_dir.h"

namespace quarrel {
namespace {

class History : public testing::Test {
 protected:
  std::string content() const {
    std::ostringstream text;
    text << std::ifstream(path_).rdbuf();
    return text.str();
  }
  void write(const std::string& text) const { std::ofstream(path_) << text; }
  std::vector<std::string> entries() const {
    const LineHistory history(path_);
    std::vector<std::string> result;
    for (std::size_t i = 0; i < history.size(); ++i) result.push_back(history[i]);
    return result;
  }
  mode_t mode() const {
    struct stat info{};
    EXPECT_EQ(::stat(path_.c_str(), &info), 0);
    return info.st_mode & 0777;
  }

  test::TempDir folder_;
  std::filesystem::path path_ = folder_ / "history";
};

using Lines = std::vector<std::string>;

TEST_F(History, IsWrittenAtOnce) {
  path_ = folder_ / "a" / "b" / "history";
  LineHistory history(path_);
  EXPECT_FALSE(std::filesystem::exists(path_));
  history.add("one\ntwo \\n three");
  EXPECT_EQ(content(), "one\\ntwo \\\\n three\n");
  EXPECT_EQ(mode(), 0600u);
  EXPECT_EQ(entries(), Lines{"one\ntwo \\n three"});
}

TEST_F(History, HasNoRepeats) {
  LineHistory history(path_);
  for (const char* line : {"a", "b", "a", "a", ""}) history.add(line);
  EXPECT_EQ(history.size(), 2u);
  EXPECT_EQ(history[1], "a");
  EXPECT_EQ(entries(), (Lines{"b", "a"}));
}

TEST_F(History, IsBounded) {
  LineHistory history(path_);
  std::string many;
  for (int i = 0; i < 5000; ++i) many += std::to_string(i) + "\n";
  write(many);
  const Lines kept = entries();
  ASSERT_EQ(kept.size(), LineHistory::kMostEntries);
  EXPECT_EQ(kept.back(), "4999");
  EXPECT_LT(content().size(), many.size() / 4);  // written anew
  EXPECT_EQ(mode(), 0600u);
  history.add(std::string(LineHistory::kLongestKept + 1, 'x'));
  EXPECT_EQ(history.size(), 1u);
  EXPECT_EQ(entries().back(), "4999");
}

TEST_F(History, AFileThatWasReplacedIsTakenAsItIs) {
  LineHistory history(path_);
  history.add("before");
  write("");
  for (int i = 0; i < 3000; ++i) std::ofstream(path_, std::ios::app) << i << "\n";
  EXPECT_EQ(entries().size(), LineHistory::kMostEntries);  // another process has put a new file there
  history.add("after");
  EXPECT_EQ(entries().back(), "after");
}

TEST_F(History, TwoProcessesLoseNothing) {
  constexpr int kEach = 200;
  std::vector<pid_t> children;
  for (const char* name : {"left", "right"}) {
    const pid_t child = ::fork();
    if (child == 0) {
      LineHistory history(path_);
      for (int i = 0; i < kEach; ++i) history.add(name + std::to_string(i));
      ::_exit(0);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) ::waitpid(child, nullptr, 0);
  EXPECT_EQ(entries().size(), 2u * kEach);
}

TEST_F(History, AHeldLockDoesNotHang) {
  write("old\n");
  const int holder = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_EQ(::flock(holder, LOCK_EX), 0);
  LineHistory history(path_);
  EXPECT_EQ(history.size(), 1u);
  history.add("new");
  EXPECT_EQ(history.size(), 2u);
  ::close(holder);
  EXPECT_EQ(entries(), Lines{"old"});
}

TEST_F(History, WhateverLiesThere) {
  write("half a line");
  LineHistory(path_).add("next");
  EXPECT_EQ(entries(), (Lines{"half a line", "next"}));
  write(std::string("bad \xFF\x1b[31m\x07 \0 bytes\n", 20));
  EXPECT_EQ(entries(), Lines{"bad \uFFFD[31m  bytes"});
  std::filesystem::remove(path_);
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  LineHistory pipe(path_);
  pipe.add("x");
  EXPECT_EQ(pipe.size(), 1u);
  std::filesystem::remove(path_);
  std::filesystem::create_directory(path_);
  LineHistory(path_).add("x");
}

TEST_F(History, OfAnOlderVersionIsTakenOver) {
  write("_HiStOrY_V2_\nWhy\\040is\\040the\\040sky\\040blue?\n/show\ngr\\303\\274n\n");
  EXPECT_EQ(entries(), (Lines{"Why is the sky blue?", "/show", "grün"}));
  EXPECT_EQ(content(), "Why is the sky blue?\n/show\ngrün\n");
}

TEST_F(History, FindsText) {
  LineHistory history{std::filesystem::path()};
  for (const char* line : {"one", "two", "one more"}) history.add(line);
  EXPECT_EQ(history.find_older("one", 3), 2u);
  EXPECT_EQ(history.find_older("one", 2), 0u);
  EXPECT_EQ(history.find_older("one", 0), LineHistory::kNone);
  EXPECT_EQ(history.find_newer("one", 0), 2u);
}

}  // namespace
}  // namespace quarrel
