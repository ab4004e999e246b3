// Valid requests, changed at random and sent in-process: bodies to every endpoint, bytes to connections. A few thousand
// by default; `make soak` has QUARREL_FUZZ_CASES=1000000 of them, under AddressSanitizer.
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "fuzz/mutation.h"
#include "fuzz/request_targets.h"
#include "fuzz/targets.h"
#include "server/key_record.h"
#include "server/routes.h"

namespace quarrel::fuzz {
namespace {

using namespace std::string_view_literals;

std::size_t cases() {
  const char* count = std::getenv("QUARREL_FUZZ_CASES");
  return count == nullptr ? 20'000 : std::strtoul(count, nullptr, 10);
}

// Many fields, so that each has values to change; what is not here has its example.
std::string body_of(const Route& row) {
  static const std::map<std::string_view, std::string_view> kRich = {
      {"/v1/chat/completions", R"({"model":"m","messages":[{"role":"system","content":"s"},{"role":"user","content":
        [{"type":"text","text":"t"}]},{"role":"assistant","content":null}],"max_tokens":5,"temperature":0.5,"top_p":0.9,
        "top_k":40,"min_p":0.1,"typical_p":1,"presence_penalty":1,"frequency_penalty":-1,"repeat_penalty":1.1,
        "repeat_last_n":64,"seed":1,"stop":["a","b"],"n":2,"logit_bias":{"5":-100},"logprobs":true,"top_logprobs":3,
        "stream":true,"stream_options":{"include_usage":true},"user":"u","tools":[],"response_format":{"type":"text"},
        "chat_template_kwargs":{"a":1},"max_completion_tokens":7})"},
      {"/v1/completions", R"({"prompt":[1,2,3],"echo":false,"logprobs":2,"best_of":3,"n":2,"suffix":"","stop":"x"})"},
      {"/v1/embeddings", R"({"input":["a",[1,2]],"encoding_format":"base64","dimensions":8,"truncate":true,
        "normalize":false,"user":"u"})"},
      {"/api/generate", R"({"model":"m","prompt":"p","system":"s","raw":false,"context":[1,2],"stream":false,
        "keep_alive":"1h30m","shift":true,"format":"","options":{"num_predict":5,"num_ctx":16,"num_keep":2,
        "temperature":1,"top_k":4,"mirostat":2,"mirostat_tau":5,"seed":-1,"stop":["a"],"num_gpu":1,"tfs_z":1}})"},
      {"/api/chat", R"({"model":"m","messages":[{"role":"user","content":"c","tool_calls":[{"function":{}}],
        "tool_name":"n","images":[]}],"stream":true,"keep_alive":-1,"options":{"num_thread":2},"tools":[]})"},
      {"/api/stream", R"({"model":"m","messages":[{"role":"user","content":"c"}],"temperature":1,"topk":4,"topp":0.5,
        "minp":0.1,"repeat_penalty":1.1,"max_tokens":7,"seed":3,"stop":["a"]})"},
  };
  const auto found = kRich.find(row.path);
  return found == kRich.end() ? row.describe().example.dump() : std::string(found->second);
}

TEST(FuzzRequests, ChangedBodies) {
  Mutator mutator(1);
  const std::span<const Route* const> rows = routes_with_bodies();
  std::vector<std::string> bodies;
  std::size_t read = 0;
  for (const Route* row : rows) {
    bodies.push_back(body_of(*row));
    if (answer_to_body(*row, bodies.back()) == 404) ++read;
  }
  EXPECT_GE(read, 9u) << "what is changed is valid before";
  for (std::size_t i = 0; i < cases(); ++i) {
    const std::size_t which = mutator.below(rows.size());
    const std::string input = static_cast<char>(which) + mutator.json(bodies[which]);
    ASSERT_NO_THROW(request_body(std::as_bytes(std::span(input)))) << i << ": " << rows[which]->path << " " << input;
  }
}

// A model takes its time, so these are fewer.
TEST(FuzzRequests, ChangedBodiesToAModel) {
  Mutator mutator(5);
  const std::span<const Route* const> rows = routes_with_bodies();
  std::vector<std::pair<const Route*, std::string>> answered;
  for (const Route* row : rows) {
    std::string body = body_of(*row);
    if (answer_of_toy(*row, body) == 200) answered.emplace_back(row, std::move(body));
  }
  ASSERT_GE(answered.size(), 12u) << "what is changed is answered before";
  const std::size_t count = cases() / 20;
  std::size_t good = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const auto& [row, body] = answered[mutator.below(answered.size())];
    const std::string changed = mutator.json(body);
    unsigned status = 0;
    ASSERT_NO_THROW(status = answer_of_toy(*row, changed)) << i << ": " << row->path << " " << changed;
    ASSERT_NE(status, 500u) << i << ": " << row->path << " " << changed;
    if (status == 200) ++good;
  }
  RecordProperty("answered", std::to_string(good));
  EXPECT_GE(good, count / 100) << "of " << count << ": without them the model sees nothing of the changes";
}

TEST(FuzzRequests, ChangedFiles) {
  const std::string keys =
      write_keys({{.name = "a",
                   .role = Role::admin,
                   .models = {"m"},
                   .priority = Priority::batch,
                   .limits = {},
                   .created = WallTime(std::chrono::seconds(1'700'000'000)),
                   .expires = WallTime(std::chrono::seconds(1'800'000'000)),
                   .number = 7,
                   .cache_salt = 9,
                   .secrets = {{.id = "0123456789", .salt = "ab", .hash = std::string(64, 'a')}}}});
  const std::string settings =
      "[server]\nport = 1001\nhost = \"::1\"\n[engine]\nthreads = 3\n[models.\"a b\"]\npath = \"x.gguf\"\n";
  Mutator mutator(3);
  for (std::size_t i = 0; i < cases() / 4; ++i) {
    const std::string file = mutator.below(2) == 0 ? mutator.json(keys) : mutator.bytes(keys);
    ASSERT_NO_THROW(key_file(std::as_bytes(std::span(file)))) << i << ": " << file;
    const std::string toml = mutator.bytes(settings);
    ASSERT_NO_THROW(settings_file(std::as_bytes(std::span(toml)))) << i << ": " << toml;
  }
}

TEST(FuzzRequests, ChangedMessages) {
  static constexpr std::string_view kMessage =
      R"({"type":"inference","id":"a","payload":{"prompt":"p","model":"m","temperature":1,"topk":4,"stream":true}})";
  // Masked with zeros: a text in two fragments, a ping between them, a close.
  const std::string frames("\x01\x83\0\0\0\0abc\x89\x80\0\0\0\0\x80\x82\0\0\0\0de\x88\x82\0\0\0\0\x03\xe8"sv);
  Mutator mutator(4);
  for (std::size_t i = 0; i < cases() / 4; ++i) {
    const std::string message = mutator.json(kMessage);
    ASSERT_NO_THROW(socket_message(std::as_bytes(std::span(message)))) << i << ": " << message;
    const std::string bytes = mutator.bytes(frames);
    ASSERT_NO_THROW(websocket_frames(std::as_bytes(std::span(bytes)))) << i << ": " << testing::PrintToString(bytes);
  }
}

TEST(FuzzRequests, ChangedBytes) {
  static constexpr std::array<std::string_view, 5> kRequests = {
      "GET /v1/models/a%20b?x=1 HTTP/1.1\r\nHost: localhost\r\nx-request-id: abc\r\nAccept: */*\r\n\r\n",
      "POST /api/chat HTTP/1.1\r\nHost: localhost:8080\r\nContent-Type: application/json\r\nContent-Length: 13\r\n"
      "\r\n{\"model\":\"m\"}GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n",
      "POST /stream HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6;a=b\r\n "
      "world\r\n0\r\n"
      "X: y\r\n\r\nGET /stream HTTP/1.1\r\nHost: a\r\n\r\n",
      "HEAD /closed HTTP/1.1\r\nHost: [::1]\r\nConnection: keep-alive\r\nExpect: 100-continue\r\nContent-Length: "
      "2\r\n\r\nab",
      "GET / HTTP/1.0\r\n\r\n",
  };
  Mutator mutator(2);
  for (std::size_t i = 0; i < cases() / 10; ++i) {
    const std::string input = mutator.bytes(std::string(kRequests[mutator.below(kRequests.size())]));
    ASSERT_NO_THROW(http_connection(std::as_bytes(std::span(input)))) << i << ": " << testing::PrintToString(input);
  }
}

}  // namespace
}  // namespace quarrel::fuzz
