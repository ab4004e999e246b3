// Who may send what, without sockets.
#include "server/admission.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "support/temp_dir.h"

namespace quarrel {
namespace {

using http::Headers;

class AdmissionTest : public ::testing::Test {
 protected:
  std::unique_ptr<RequestAdmission> make(AdmissionOptions options = {}, std::string address = "127.0.0.1") {
    options.keys.now = [this] { return now; };
    return std::make_unique<RequestAdmission>(std::move(options), std::move(address), limits, log);
  }
  AdmissionOptions with_keys() const { return {.keys = {.file = folder.path() / "keys.json"}}; }
  std::string create(KeyWishes wishes) { return KeyStore(folder.path() / "keys.json").create(wishes, {}).key; }

  static http::Request request(const std::string& method, const std::string& path, Headers headers = {}) {
    headers.emplace_back("Host", "localhost:8080");
    return {.method = method, .path = path, .headers = std::move(headers), .id = "r", .address = "10.0.0.9"};
  }
  static Headers bearer(const std::string& key) { return {{"Authorization", "Bearer " + key}}; }

  // A path of that route.
  static std::string example(const Route& route) {
    std::string path(route.path);
    const std::size_t open = path.find('{');
    if (open != std::string::npos) path.replace(open, path.find('}') - open + 1, "x");
    return path;
  }
  // The status that it is refused with; 0: it is admitted.
  unsigned decide(RequestAdmission& admission, const http::Request& request, bool ready = true) {
    facts = {};
    answer = admission.decide(request, ready, facts);
    return answer.refusal;
  }
  std::string header(std::string_view name) const {
    for (const auto& [each, value] : answer.answer.headers) {
      if (http::equals_ignoring_case(each, name)) return value;
    }
    return {};
  }

  test::TempDir folder;
  MemoryLog log;
  Limits limits;
  Clock::time_point now = Clock::now();
  RequestFacts facts;
  http::Admission answer;
};

TEST_F(AdmissionTest, WithoutKeysEverybodyMayDoEverything) {
  const auto admission = make();
  for (const Route& route : routes()) {
    EXPECT_EQ(decide(*admission, request(std::string(route.method), example(route))), 0u) << route.path;
  }
  EXPECT_EQ(facts.caller->role, Role::admin);
  EXPECT_EQ(decide(*admission, request("GET", "/v1/models", bearer("whatever clients send"))), 0u);
}

// Every route, with every kind of key.
TEST_F(AdmissionTest, NothingIsOpenByAccident) {
  const std::string use = create({.name = "use"});
  const std::string admin = create({.name = "admin", .role = Role::admin});
  const std::string gone = create({.name = "gone"});
  KeyStore(folder.path() / "keys.json").revoke("gone", {});
  const std::string old = create({.name = "old", .lifetime = std::chrono::seconds(1)});
  const auto admission = make(with_keys());
  int asked = 0;
  for (const Route& route : routes()) {
    const std::string path = example(route);
    const std::string method(route.method);
    const bool open = route.access == Access::everybody;
    // Each from an address of its own: they are not to run into the limit on wrong keys.
    const auto status = [&](Headers headers) {
      http::Request each = request(method, path, std::move(headers));
      each.address = fmt::format("10.1.{}.{}", asked / 250, asked % 250);
      ++asked;
      return decide(*admission, each);
    };
    EXPECT_EQ(status({}), open ? 0u : 401u) << path;
    for (const std::string& wrong : {std::string("wrong"), gone, old, use + "x", make_secret({}).key}) {
      EXPECT_EQ(status(bearer(wrong)), open ? 0u : 401u) << path;
    }
    EXPECT_EQ(status({{"Authorization", "Basic " + use}}), open ? 0u : 401u) << path;
    EXPECT_EQ(status({{"Authorization", use}}), open ? 0u : 401u) << path;
    EXPECT_EQ(status({{"x-api-key", use}}), open ? 0u : 401u) << path;
    EXPECT_EQ(status(bearer(use)), route.access == Access::admin ? 403u : 0u) << path;
    EXPECT_EQ(status(bearer(admin)), 0u) << path;
    EXPECT_EQ(status({{"authorization", "apikey " + admin}}), 0u) << path;
  }
  EXPECT_GT(admission->counters().wrong_keys, 0u);
  EXPECT_GT(admission->counters().expired_keys, 0u);
  EXPECT_GT(admission->counters().revoked_keys, 0u);
  for (const auto& [level, line] : log.lines) {
    for (const std::string& key : {use, admin, gone, old}) EXPECT_EQ(line.find(key.substr(13)), std::string::npos);
  }
}

TEST_F(AdmissionTest, AKeyInTheUrlIsRefused) {
  const std::string key = create({.name = "a"});
  const auto admission = make(with_keys());
  for (const std::string& query : std::vector<std::string>{
           "key=" + key, "api_key=x", "a=b&token=x", "API_KEY=x", "x=" + key, "x-api-key=x", "%6bey=x", "a=b&to%6Ben=x",
           "api%5Fkey=x", "x=%71k_" + key.substr(3), "x=q%6b%5F" + key.substr(3), "Authorization=Bearer%20x"}) {
    http::Request each = request("GET", "/v1/models", bearer(key));
    each.query = query;
    EXPECT_EQ(decide(*admission, each), 400u) << query;
  }
  http::Request harmless = request("GET", "/v1/models", bearer(key));
  for (const char* query : {"limit=3&monkey=x", "a=%", "a=%4", "a=%zz&b=%6b", "100%key=1"}) {
    harmless.query = query;
    EXPECT_EQ(decide(*admission, harmless), 0u) << query;
  }
}

// What is behind the name is a port, or another reader may take it for a part of the name.
TEST_F(AdmissionTest, AHostIsANameAndAPort) {
  const auto open = make();
  const std::string key = create({.name = "a"});
  const auto keyed = make(with_keys());
  const auto status = [&](RequestAdmission& admission, const std::string& host) {
    http::Request each{.method = "GET", .path = "/v1/models", .headers = bearer(key), .id = "r"};
    each.headers.emplace_back("Host", host);
    return decide(admission, each);
  };
  for (const char* host : {"localhost", "LOCALHOST:8080", "127.0.0.1:80", "[::1]", "[::1]:65535", "localhost:"}) {
    EXPECT_EQ(status(*open, host), 0u) << host;
    EXPECT_EQ(status(*keyed, host), 0u) << host;
  }
  for (const char* host : {"", ":80", "[::1]evil.com", "[::1", "[]", "localhost:evil", "localhost:80:80",
                           "127.0.0.1:80:80", "localhost:8080/", "user@localhost", "localhost:123456", "localhost:-1",
                           "local host", "localhost,evil.com", "::1", "localhost:80]"}) {
    EXPECT_EQ(status(*open, host), 400u) << host;
    EXPECT_EQ(status(*keyed, host), 400u) << host;
  }
}

// The answer was charged when it began, and each question of a WebSocket is charged by itself.
TEST_F(AdmissionTest, WhatRunsIsTakenUpBeyondALimit) {
  const std::string key = create({.name = "a", .limits = {.requests_per_minute = 1, .concurrency = 1}});
  const auto admission = make(with_keys());
  const Headers lost = {{"Authorization", "Bearer " + key}, {"Last-Event-ID", std::string(32, '0') + ":7"}};
  EXPECT_EQ(decide(*admission, request("POST", "/api/stream", bearer(key))), 0u);
  const RequestFacts running = facts;  // the answer goes on
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(decide(*admission, request("POST", "/api/stream", lost)), 0u);
    EXPECT_EQ(decide(*admission, request("GET", "/ws", bearer(key))), 0u);
    EXPECT_EQ(decide(*admission, request("DELETE", "/api/stream", lost)), 0u) << "else it would go on, and cost tokens";
  }
  EXPECT_EQ(decide(*admission, request("GET", "/v1/models", bearer(key))), 429u);
  EXPECT_EQ(decide(*admission, request("POST", "/api/stream", bearer(key))), 429u);
  EXPECT_EQ(decide(*admission, request("POST", "/api/generate", lost)), 429u) << "there nothing is taken up";
  for (const std::string& no_place : {std::string("7"), std::string("0123:4"), std::string(32, '0') + ":"}) {
    const Headers headers = {{"Authorization", "Bearer " + key}, {"Last-Event-ID", no_place}};
    EXPECT_EQ(decide(*admission, request("POST", "/api/stream", headers)), 429u) << no_place;
    EXPECT_EQ(decide(*admission, request("DELETE", "/api/stream", headers)), 429u) << no_place;
  }
}

TEST_F(AdmissionTest, ABrowsersWebSocketOffersItsKey) {
  const auto key_of = [&](Headers headers) { return presented_key(request("GET", "/ws", std::move(headers))); };
  const Headers upgrade = {{"Upgrade", "websocket"}};
  const auto with = [&](const std::string& protocols, Headers more = {}) {
    more.insert(more.end(), upgrade.begin(), upgrade.end());
    more.emplace_back("Sec-WebSocket-Protocol", protocols);
    return more;
  };
  EXPECT_EQ(key_of(with("quarrel.v1, quarrel.key.b3BlbiBzZXNhbWU")), "open sesame");
  EXPECT_EQ(key_of(with("quarrel.v1")), "");
  EXPECT_EQ(key_of({{"Sec-WebSocket-Protocol", "quarrel.key.b3BlbiBzZXNhbWU"}}), "") << "it is no upgrade";
  Headers two_lines = with("quarrel.v1");
  two_lines.emplace_back("Sec-WebSocket-Protocol", "quarrel.key.b3BlbiBzZXNhbWU");
  EXPECT_EQ(key_of(two_lines), "open sesame");
  for (const char* bad : {"quarrel.key.b3BlbiBzZXNhbWU=", "quarrel.key.b3BlbiBzZXNhbWV", "quarrel.key.a+b/",
                          "quarrel.key.YQ, quarrel.key.Yg"}) {
    EXPECT_THROW(key_of(with(bad)), ApiError) << bad;
  }
  EXPECT_THROW(key_of(with("quarrel.key.YQ", {{"Authorization", "Bearer a"}})), ApiError);
}

TEST_F(AdmissionTest, GuessesAreCountedAndSlowedDown) {
  const std::string key = create({.name = "a"});
  AdmissionOptions options = with_keys();
  options.keys.single_key = "weak";
  const auto admission = make(options);
  for (int i = 0; i < FailedKeys::kMostAMinute; ++i) {
    EXPECT_EQ(decide(*admission, request("GET", "/v1/models", bearer(fmt::format("guess {}", i)))), 401u);
    EXPECT_EQ(header("WWW-Authenticate"), "Bearer");
  }
  EXPECT_EQ(decide(*admission, request("GET", "/v1/models", bearer("guess"))), 429u);
  EXPECT_NE(header("Retry-After"), "");
  EXPECT_EQ(decide(*admission, request("GET", "/v1/models", bearer("weak"))), 429u) << "not even looked at";
  EXPECT_EQ(decide(*admission, request("GET", "/v1/models", bearer(make_secret({}).key))), 429u);
  EXPECT_EQ(decide(*admission, request("GET", "/v1/models", bearer(key))), 0u)
      << "a neighbour's guesses lock nobody out";
  EXPECT_EQ(decide(*admission, request("GET", "/v1/models")), 401u) << "who has none guesses nothing";
  http::Request elsewhere = request("GET", "/v1/models", bearer("weak"));
  elsewhere.address = "10.0.0.10";
  EXPECT_EQ(decide(*admission, elsewhere), 0u);
  EXPECT_EQ(admission->counters().limited_addresses, 3u);
}

TEST_F(AdmissionTest, APageFromElsewhereIsRefused) {
  const auto plain = make();
  const auto status = [&](RequestAdmission& admission, const std::string& host, const std::string& origin) {
    http::Request each = request("GET", "/v1/models");
    each.headers = {{"Host", host}};
    if (!origin.empty()) each.headers.emplace_back("Origin", origin);
    return decide(admission, each);
  };
  for (const char* host : {"localhost", "LOCALHOST:8080", "127.0.0.1:8080", "127.9.9.9", "[::1]:8080"}) {
    EXPECT_EQ(status(*plain, host, ""), 0u) << host;
    EXPECT_EQ(status(*plain, host, std::string("http://") + host), 0u) << host;
    EXPECT_EQ(status(*plain, host, "http://evil.example"), 403u) << host;
    EXPECT_EQ(status(*plain, host, "null"), 403u) << host;
    EXPECT_EQ(status(*plain, host, "file://"), 403u) << host;
    EXPECT_EQ(status(*plain, host, std::string("ftp://") + host), 403u) << host;
  }
  for (const char* host : {"evil.example", "127.evil.example", "localhost.evil.example", "192.168.1.2", "[::2]",
                           "127.0.0.1.evil", "0x7f.1", "2130706433"}) {
    EXPECT_EQ(status(*plain, host, ""), 403u) << host;
    EXPECT_EQ(status(*plain, host, std::string("http://") + host), 403u) << host;
  }
  const auto listed = make({.allowed_hosts = {"box.lan"}, .allowed_origins = {"https://app.example"}});
  EXPECT_EQ(status(*listed, "Box.lan:8080", ""), 0u);
  EXPECT_EQ(status(*listed, "localhost", "https://app.example"), 0u);
  EXPECT_EQ(status(*listed, "localhost", "http://app.example"), 403u);
  EXPECT_EQ(status(*listed, "localhost", "https://app.example.evil"), 403u);
  EXPECT_EQ(status(*listed, "evil.example", "https://app.example"), 403u);
  EXPECT_GT(plain->counters().foreign_pages, 0u);
}

TEST_F(AdmissionTest, OtherMachinesNeedKeysOrAWordThatTheyDoNot) {
  EXPECT_THROW(make({}, "0.0.0.0"), Error);
  EXPECT_THROW(make({}, "192.168.1.2"), Error);
  EXPECT_THROW(make({}, "::"), Error);
  EXPECT_THROW(make({}, "127.evil.example"), Error);
  EXPECT_NO_THROW(make({.keys = {.single_key = "x"}}, "0.0.0.0"));
  EXPECT_TRUE(log.lines.empty());
  const auto open = make({.open = true}, "0.0.0.0");
  ASSERT_EQ(log.lines.size(), 1u);
  EXPECT_EQ(log.lines[0].first, LogLevel::warning);
  http::Request each = request("GET", "/v1/models");
  for (const char* host : {"192.168.1.2:8080", "[2001:db8::1]:8080"}) {
    each.headers = {{"Host", host}};
    EXPECT_EQ(decide(*open, each), 0u) << "no name server can point a number here";
  }
  each.headers = {{"Host", "evil.example"}};
  EXPECT_EQ(decide(*open, each), 403u);
}

TEST_F(AdmissionTest, ListedPagesMayCall) {
  const auto admission = make({.allowed_origins = {"https://app.example"}});
  http::Request ask = request("OPTIONS", "/v1/chat/completions",
                              {{"Origin", "https://app.example"},
                               {"Access-Control-Request-Method", "POST"},
                               {"Access-Control-Request-Headers", "authorization, x-stainless-lang"}});
  EXPECT_EQ(decide(*admission, ask), 204u);
  EXPECT_EQ(answer.answer.body, "");
  EXPECT_EQ(header("Access-Control-Allow-Origin"), "https://app.example");
  EXPECT_EQ(header("Access-Control-Allow-Methods"), "POST");
  EXPECT_EQ(header("Access-Control-Allow-Headers"), "authorization, x-stainless-lang");
  EXPECT_EQ(header("Access-Control-Allow-Credentials"), "");
  EXPECT_EQ(header("Vary"), "Origin");
  ask.path = "/nowhere";
  EXPECT_EQ(decide(*admission, ask), 404u);
  EXPECT_EQ(header("Access-Control-Allow-Origin"), "https://app.example") << "so that the page learns why";
  const http::Request usual = request("GET", "/v1/models", {{"Origin", "https://app.example"}});
  EXPECT_EQ(decide(*admission, usual), 0u);
  EXPECT_FALSE(admission->answer_headers(usual, nullptr).empty());
  EXPECT_EQ(decide(*make(), ask), 403u);
  EXPECT_TRUE(make()->answer_headers(usual, nullptr).empty());
  EXPECT_EQ(decide(*admission, request("OPTIONS", "/v1/models")), 405u);
}

TEST_F(AdmissionTest, PrioritiesGoDownAndNotUp) {
  const std::string slow = create({.name = "slow", .priority = Priority::normal});
  const std::string usual = create({.name = "usual"});
  const auto admission = make(with_keys());
  const auto priority = [&](const std::string& key, const std::string& wanted) {
    Headers headers = bearer(key);
    if (!wanted.empty()) headers.emplace_back("x-quarrel-priority", wanted);
    EXPECT_EQ(decide(*admission, request("POST", "/v1/completions", headers)), 0u);
    return facts.caller->priority;
  };
  EXPECT_EQ(priority(usual, ""), std::nullopt);
  EXPECT_EQ(priority(usual, "interactive"), Priority::interactive);
  EXPECT_EQ(priority(usual, "batch"), Priority::batch);
  EXPECT_EQ(priority(slow, ""), Priority::normal);
  EXPECT_EQ(priority(slow, "interactive"), Priority::normal);
  EXPECT_EQ(priority(slow, "batch"), Priority::batch);
  for (const char* none : {"urgent", ""}) {
    Headers wrong = bearer(usual);
    wrong.emplace_back("x-quarrel-priority", none);
    EXPECT_EQ(decide(*admission, request("POST", "/v1/completions", wrong)), 400u) << none;
  }
}

TEST_F(AdmissionTest, LimitsAreToldInHeaders) {
  const std::string key = create({.name = "a", .limits = {.requests_per_minute = 1}});
  const auto admission = make(with_keys());
  const http::Request each = request("POST", "/v1/completions", bearer(key));
  EXPECT_EQ(decide(*admission, each), 0u);
  ASSERT_NE(facts.ticket, nullptr);
  EXPECT_EQ(admission->answer_headers(each, facts.ticket.get()).size(), 3u);
  EXPECT_EQ(decide(*admission, each), 429u);
  EXPECT_EQ(header("x-ratelimit-remaining-requests"), "0");
  EXPECT_NE(header("Retry-After"), "");
  EXPECT_EQ(decide(*admission, request("GET", "/health", bearer(key))), 0u);
  EXPECT_EQ(admission->counters().limited_keys, 1u);
}

TEST_F(AdmissionTest, AnAnswerThatIsTakenUpHasItsPlaceAlready) {
  const std::string key = create({.name = "a", .limits = {.concurrency = 1}});
  const auto admission = make(with_keys());
  Headers lost = bearer(key);
  lost.emplace_back("Last-Event-ID", std::string(32, '0') + ":4");
  EXPECT_EQ(decide(*admission, request("POST", "/api/stream", bearer(key))), 0u);
  const std::shared_ptr<LimitTicket> running = facts.ticket;
  EXPECT_EQ(decide(*admission, request("POST", "/api/stream", lost)), 0u);
  EXPECT_EQ(decide(*admission, request("POST", "/api/stream", bearer(key))), 429u);
  EXPECT_EQ(decide(*admission, request("POST", "/api/chat", lost)), 429u) << "there it would compute";
}

TEST_F(AdmissionTest, TheUnixSocketIsItsOwners) {
  create({.name = "a"});
  const auto admission = make(with_keys());
  http::Request each = request("DELETE", "/api/delete");
  each.unix_socket = true;
  EXPECT_EQ(decide(*admission, each), 0u);
  EXPECT_EQ(facts.caller->role, Role::admin);
  each.headers.emplace_back("X-Forwarded-For", "10.0.0.1");
  EXPECT_EQ(decide(*admission, each), 401u) << "somebody passes on what others send";
  http::Request wrong = request("DELETE", "/api/delete", bearer("wrong"));
  wrong.unix_socket = true;
  EXPECT_EQ(decide(*admission, wrong), 401u);
}

TEST_F(AdmissionTest, NothingNewWhileTheServerEnds) {
  const auto admission = make();
  EXPECT_EQ(decide(*admission, request("GET", "/v1/models"), false), 503u);
  EXPECT_EQ(decide(*admission, request("GET", "/health"), false), 0u);
}

}  // namespace
}  // namespace quarrel
