// The server's log: what a line holds, what it never holds, and what becomes of it when there is no room.
#include "server/watch/server_log.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "server/watch/request_log.h"
#include "support/temp_dir.h"

namespace quarrel {
namespace {

std::vector<std::string> lines_of(const std::filesystem::path& path) {
  std::vector<std::string> lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

RequestFacts answered() {
  RequestFacts facts{.id = "abc-1", .route = "POST /v1/chat/completions", .address = "127.0.0.1", .model = "to\"y"};
  facts.caller = std::make_shared<const Caller>(Caller{.name = "alice"});
  facts.trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
  facts.prompt_tokens = 7;
  facts.cached_tokens = 2;
  facts.generated_tokens = 5;
  facts.status = 200;
  facts.finish_reason = "length";
  facts.acquired = facts.submitted = facts.begun + std::chrono::milliseconds(1);
  facts.started = facts.begun + std::chrono::milliseconds(3);
  facts.first_token = facts.begun + std::chrono::milliseconds(8);
  facts.last_token = facts.ended = facts.begun + std::chrono::milliseconds(20);
  return facts;
}

TEST(ServerLog, ARequestIsALineOfJson) {
  const test::TempDir folder;
  {
    const auto log = std::make_shared<ServerLog>(ServerLogOptions{.file = (folder / "log").string()});
    EXPECT_TRUE(log->is_json()) << "a file is no terminal";
    RequestLog(log).ended(answered());
    RequestFacts routine{.id = "h", .route = "GET /healthz", .status = 200};
    RequestLog(log).ended(routine);
  }
  const std::vector<std::string> lines = lines_of(folder / "log");
  ASSERT_EQ(lines.size(), 1u) << "health is not worth a line";
  const auto line = nlohmann::json::parse(lines[0]);
  const nlohmann::json expected = {{"level", "info"},
                                   {"event", "request"},
                                   {"id", "abc-1"},
                                   {"route", "POST /v1/chat/completions"},
                                   {"status", 200},
                                   {"caller", "alice"},
                                   {"address", "127.0.0.1"},
                                   {"model", "to\"y"},
                                   {"prompt_tokens", 7},
                                   {"cached_tokens", 2},
                                   {"generated_tokens", 5},
                                   {"priority", "normal"},
                                   {"queue_ms", 2.0},
                                   {"first_token_ms", 8.0},
                                   {"decode_ms", 12.0},
                                   {"duration_ms", 20.0},
                                   {"finish_reason", "length"},
                                   {"trace_id", "0af7651916cd43dd8448eb211c80319c"}};
  for (const auto& [name, value] : expected.items()) EXPECT_EQ(line.value(name, nlohmann::json()), value) << name;
  EXPECT_EQ(line["time"].get<std::string>().size(), 24u);
  EXPECT_EQ(line["time"].get<std::string>().back(), 'Z');
}

TEST(ServerLog, TextIsForPeopleAndLevelsCount) {
  const test::TempDir folder;
  {
    const auto log = std::make_shared<ServerLog>(
        ServerLogOptions{.format = LogFormat::text, .least = LogLevel::warning, .file = (folder / "log").string()});
    log->info("nobody asked");
    log->warn("the disk is {}", "full\nof lines\x1b[2J");
    RequestLog(log).ended(answered());
    RequestFacts broken = answered();
    broken.status = 500;
    broken.error = "server_error";
    broken.code = "model_failed";
    RequestLog(log).ended(broken);
  }
  const std::vector<std::string> lines = lines_of(folder / "log");
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_NE(lines[0].find("warning: the disk is full\\x0aof lines\\x1b[2J"), std::string::npos) << lines[0];
  EXPECT_NE(lines[1].find("POST /v1/chat/completions 500"), std::string::npos) << lines[1];
  EXPECT_NE(lines[1].find("server_error model_failed [abc-1]"), std::string::npos) << lines[1];
}

TEST(ServerLog, KeysAreMasked) {
  EXPECT_EQ(without_keys("key qk_0123abcd was tried"), "key qk_[masked] was tried");
  EXPECT_EQ(without_keys("Authorization: Bearer sk-a.b+c/d=="), "Authorization: Bearer [masked]");
  EXPECT_EQ(without_keys("ApiKey x, qk_y; qk_"), "ApiKey [masked], qk_[masked]; qk_");
  EXPECT_EQ(without_keys("quick work"), "quick work");
  const test::TempDir folder;
  {
    ServerLog log({.file = (folder / "log").string()});
    log.warn("refused: {}", "Bearer qk_canary");
  }
  ASSERT_EQ(lines_of(folder / "log").size(), 1u);
  EXPECT_EQ(lines_of(folder / "log")[0].find("canary"), std::string::npos);
}

TEST(ServerLog, AFullDiskCostsLinesAndNothingElse) {
  ServerLog log({.file = "/dev/full"});
  for (int i = 0; i < 10; ++i) log.warn("line {}", i);
  while (log.lost() < 10) ::usleep(1000);
  EXPECT_EQ(log.lost(), 10u);
}

TEST(ServerLog, APipeThatNobodyReadsCostsLinesAndNothingElse) {
  const test::TempDir folder;
  const std::string path = (folder / "pipe").string();
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  const int reader = ::open(path.c_str(), O_RDONLY | O_NONBLOCK);
  ASSERT_GE(reader, 0);
  {
    ServerLog log({.file = path});
    const std::string line(1000, 'x');
    for (int i = 0; i < 500; ++i) log.warn("{}", line);
  }
  ::close(reader);
}

TEST(ServerLog, AFileThatWasMovedAwayIsOpenedAnew) {
  const test::TempDir folder;
  ServerLog log({.format = LogFormat::text, .file = (folder / "log").string()});
  log.warn("before");
  while (lines_of(folder / "log").empty()) ::usleep(1000);
  std::filesystem::rename(folder / "log", folder / "log.1");
  log.reopen();
  log.warn("after");
  while (lines_of(folder / "log").empty()) ::usleep(1000);
  EXPECT_EQ(lines_of(folder / "log.1").size(), 1u);
  EXPECT_NE(lines_of(folder / "log")[0].find("after"), std::string::npos);
  EXPECT_THROW(ServerLog({.file = (folder / "no" / "such" / "folder").string()}), Error);
}

}  // namespace
}  // namespace quarrel
