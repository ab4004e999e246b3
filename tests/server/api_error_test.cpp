// Every kind of error through both dialects: a status, no internals, a time to come back where there is one.
#include <gtest/gtest.h>

#include <new>

#include "base/error.h"
#include "server/fields.h"
#include "session/refusal.h"

namespace quarrel {
namespace {

struct Row {
  ErrorKind kind;
  unsigned status;
  const char* type;
  bool told;  // the client sees what the error says
};

constexpr Row kRows[] = {
    {ErrorKind::usage, 400, "invalid_request_error", true},
    {ErrorKind::bad_input, 400, "invalid_request_error", true},
    {ErrorKind::unsupported, 400, "invalid_request_error", true},
    {ErrorKind::not_found, 404, "not_found_error", false},
    {ErrorKind::busy, 503, "unavailable_error", true},
    {ErrorKind::out_of_memory, 503, "unavailable_error", true},
    {ErrorKind::cancelled, 503, "unavailable_error", true},
    {ErrorKind::bad_file, 500, "server_error", false},
    {ErrorKind::io, 500, "server_error", false},
    {ErrorKind::internal, 500, "server_error", false},
};

std::string header(const http::Response& response, std::string_view name) {
  for (const auto& [key, value] : response.headers) {
    if (key == name) return value;
  }
  return {};
}

TEST(ApiErrors, EveryKindHasAStatusInBothDialects) {
  for (const Row& row : kRows) {
    const ApiError error = api_error(std::make_exception_ptr(Error(row.kind, "/secret/\"path\xff")));
    const http::Response openai = openai_error(error);
    const http::Response plain = plain_error(error);
    EXPECT_EQ(openai.status, row.status);
    EXPECT_EQ(plain.status, row.status);
    const Json said = Json::parse(openai.body)["error"];
    EXPECT_EQ(said["type"], row.type);
    EXPECT_EQ(said.size(), 4u);
    EXPECT_TRUE(said["param"].is_null());
    EXPECT_TRUE(said["code"].is_null() || !said["code"].get<std::string>().empty());
    Json wanted{{"error", said["message"]}};
    if (!said["code"].is_null()) wanted["code"] = said["code"];
    EXPECT_EQ(Json::parse(plain.body), wanted);
    EXPECT_EQ(said["message"].get<std::string>().find("secret") != std::string::npos, row.told) << row.status;
    for (const http::Response& response : {openai, plain}) {
      EXPECT_EQ(header(response, "Retry-After").empty(), row.status != 503);
      EXPECT_EQ(response.content_type, "application/json");
    }
  }
}

TEST(ApiErrors, WhatIsNotOursTellsNothing) {
  const ApiError failed = api_error(std::make_exception_ptr(std::runtime_error("/secret")));
  EXPECT_EQ(failed.status, 500u);
  EXPECT_EQ(openai_error_body(failed).find("secret"), std::string::npos);
  EXPECT_EQ(api_error(std::make_exception_ptr(5)).status, 500u);
  EXPECT_EQ(api_error(std::make_exception_ptr(std::bad_alloc())).status, 503u);
  const ApiError kept = api_error(std::make_exception_ptr(invalid_field("n", "too many")));
  EXPECT_EQ(kept.param, "n");
  EXPECT_EQ(kept.status, 400u);
}

TEST(ApiErrors, AModelThatCannotBeLoadedIsNotTheRequestsFault) {
  for (const Row& row : kRows) {
    const ApiError error = load_error(std::make_exception_ptr(Error(row.kind, "/secret")));
    EXPECT_EQ(error.status, row.status == 404 || row.status == 503 ? row.status : 500u);
    if (error.status != 500) continue;
    EXPECT_EQ(std::string(error.what()).find("secret"), std::string::npos);
  }
}

TEST(ApiErrors, TheLogHasWhatTheClientIsNotTold) {
  struct Kept : Log {
    void write(LogLevel, std::string_view line) override { text += line; }
    std::string text;
  } log;
  const auto hidden = std::make_exception_ptr(Error(ErrorKind::bad_file, "/secret"));
  log_fault(log, "req-1", api_error(hidden), hidden);
  EXPECT_NE(log.text.find("/secret"), std::string::npos);
  EXPECT_NE(log.text.find("req-1"), std::string::npos);
  log.text.clear();
  const auto told = std::make_exception_ptr(Error(ErrorKind::bad_input, "too long"));
  log_fault(log, "req-1", api_error(told), told);
  EXPECT_EQ(log.text, "");
}

// Whoever reports an error has to answer after that.
TEST(ApiErrors, ALogThatTakesNothingIsNoReasonToFail) {
  struct FullDisk : Log {
    void write(LogLevel, std::string_view) override { throw std::bad_alloc(); }
  } log;
  const auto fault = std::make_exception_ptr(std::bad_alloc());
  EXPECT_NO_THROW(log_fault(log, "a", {500, "server_error", "", "something"}, fault));
}

// Programs look for this code: they shorten the conversation and try again.
TEST(ApiErrors, APromptThatIsTooLongHasACode) {
  const ApiError error = api_error(std::make_exception_ptr(TooLongError("this needs 5 tokens")));
  EXPECT_EQ(error.status, 400u);
  EXPECT_EQ(error.code, "context_length_exceeded");
  EXPECT_STREQ(error.what(), "this needs 5 tokens");
  EXPECT_EQ(plain_error_body(error), R"({"error":"this needs 5 tokens","code":"context_length_exceeded"})");
  EXPECT_EQ(Json::parse(openai_error_body(error))["error"]["code"], "context_length_exceeded");
}

TEST(ApiErrors, OfARequestAreAboutAField) {
  const ApiError empty = about_field({400, "invalid_request_error", "", "the prompt is empty"}, "prompt");
  EXPECT_EQ(empty.param, "prompt");
  EXPECT_EQ(empty.code, "invalid_value");
  const ApiError too_long = about_field(api_error(std::make_exception_ptr(TooLongError("long"))), "messages");
  EXPECT_EQ(too_long.param, "messages");
  EXPECT_EQ(too_long.code, "context_length_exceeded");
  EXPECT_EQ(about_field(invalid_field("topk", "wrong"), "prompt").param, "topk");
  EXPECT_EQ(about_field({400, "invalid_request_error", "unsupported", "no vectors"}, "input").param, "");
  EXPECT_EQ(about_field({503, "unavailable_error", "queue_full", "full"}, "prompt").param, "");
}

TEST(ApiErrors, OfTheServersEndAreOne) {
  const ApiError ended = as_draining({503, "unavailable_error", "cancelled", "loading 'toy' was cancelled"});
  EXPECT_EQ(ended.code, "draining");
  EXPECT_EQ(ended.what(), std::string("the server is about to end"));
  EXPECT_EQ(as_draining({503, "unavailable_error", "queue_full", "the model takes no more requests"}).code, "draining");
  EXPECT_EQ(as_draining({503, "unavailable_error", "timeout", "too late"}).code, "timeout");
}

TEST(ApiErrors, SayWhenToComeBack) {
  using std::chrono::milliseconds;
  const auto seconds = [](milliseconds wait) {
    return header(openai_error(api_error(std::make_exception_ptr(BusyError("full", wait)))), "Retry-After");
  };
  EXPECT_EQ(seconds(milliseconds(0)), "1");
  EXPECT_EQ(seconds(milliseconds(2001)), "3");
  const ApiError key(401, "authentication_error", "invalid_api_key", "no");
  EXPECT_EQ(header(plain_error(key), "WWW-Authenticate"), "Bearer");
}

}  // namespace
}  // namespace quarrel
