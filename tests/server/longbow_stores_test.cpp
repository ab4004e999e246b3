// Which stores may be reached, the threads that wait for them, and the bodies that name them.
#include "server/longbow_stores.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <stdexcept>

#include "base/json_reader.h"
#include "server/api_error.h"
#include "server/longbow_request.h"
#include "support/fake_longbow.h"
#include "support/gate.h"

namespace quarrel {
namespace {

struct NoLog : Log {
  void write(LogLevel, std::string_view) override {}
};

LongbowSettings only(std::vector<std::string> hosts) { return {.hosts = std::move(hosts)}; }

unsigned refusal(const LongbowStores& stores, const std::string& address) {
  try {
    stores.address(address, "to");
  } catch (const ApiError& error) {
    EXPECT_EQ(error.param, "to") << address;
    return error.status;
  }
  return 0;
}

TEST(LongbowStoresTest, ReachesNamedPortsAndNoOthers) {
  NoLog log;
  const LongbowStores stores(
      only({"Store.example", "127.0.0.1:4000", "127.0.0.1:4001", "[::1]:4000", "127.0.0.2:3000"}), log);
  for (const char* taken :
       {"longbow://store.example/a", "longbow://STORE.EXAMPLE:3000/a?meta=3001", "longbow+tls://store.example/a",
        "longbow://127.0.0.1:4000/a?meta=4001", "longbow://[::1]:4000/a?meta=4000"}) {
    EXPECT_EQ(refusal(stores, taken), 0u) << taken;
  }
  for (const char* refused :
       {"longbow://other.example/a", "longbow://store.example:22/a", "longbow://store.example/a?meta=22",
        "longbow://127.0.0.1/a", "longbow://127.0.0.1:4000/a", "longbow://store.example.other/a",
        "longbow://[::1]:4000/a?meta=4001", "longbow://127.0.0.2/a"}) {
    EXPECT_EQ(refusal(stores, refused), 403u) << refused;
  }
  for (const char* wrong : {"http://store.example/a", "longbow://store.example", "longbow://store.example/", "store"}) {
    EXPECT_EQ(refusal(stores, wrong), 400u) << wrong;
  }
}

TEST(LongbowStoresTest, NothingIsReachedUnlessTheSettingsSaySo) {
  NoLog log;
  const LongbowStores none({}, log);
  EXPECT_FALSE(none.any());
  EXPECT_EQ(refusal(none, "longbow://localhost/a"), 403u);
  EXPECT_EQ(refusal(none, ""), 400u);
  for (const char* wrong : {"host/dataset", "host/", "host?meta=4", ""}) {
    EXPECT_THROW(LongbowStores(only({wrong}), log), Error) << wrong;
  }
  EXPECT_THROW(LongbowStores({.hosts = {"a"}, .address = "longbow://b/x"}, log), Error);
}

TEST(LongbowStoresTest, WhoNamesNoAddressMeansTheOneOfTheSettings) {
  NoLog log;
  const LongbowStores stores({.hosts = {"localhost"}, .address = "longbow://localhost/notes"}, log);
  EXPECT_EQ(stores.address("", "to").dataset, "notes");
  EXPECT_EQ(stores.address("longbow://localhost/other", "to").dataset, "other");
}

// No client could do anything about them.
TEST(LongbowStoresTest, SettingsWithWhichNoStoreIsReachedAreRefusedByName) {
  NoLog log;
  const auto refused = [&](const LongbowSettings& settings) -> std::string {
    try {
      const LongbowStores stores(settings, log);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage);
      return error.what();
    }
    return {};
  };
  const auto names = [](const std::string& sentence, const char* setting) {
    return sentence.find(setting) != std::string::npos;
  };
  LongbowSettings settings{.hosts = {"192.0.2.1"}, .address = "longbow://192.0.2.1/x", .connection = {.token = "t"}};
  EXPECT_TRUE(names(refused(settings), "longbow.address")) << refused(settings);
  settings.address = "longbow+tls://192.0.2.1/x";
  EXPECT_EQ(refused(settings), "");
  settings.connection.client_key = "pem";
  EXPECT_TRUE(names(refused(settings), "longbow.cert_file")) << refused(settings);
  settings = {.hosts = {"localhost"}, .address = "longbow://localhost/x", .connection = {.token = "t"}};
  EXPECT_EQ(refused(settings), "") << "nobody else reads it there";
  settings.connection.token = "two words";
  EXPECT_TRUE(names(refused(settings), "longbow.token_file")) << refused(settings);
}

TEST(LongbowStoresTest, WhatNeedsTlsIsAskedForWithIt) {
  NoLog log;
  const LongbowStores stores({.hosts = {"192.0.2.1", "localhost"}, .connection = {.token = "t"}}, log);
  EXPECT_EQ(refusal(stores, "longbow+tls://192.0.2.1/x"), 0u);
  EXPECT_EQ(refusal(stores, "longbow://localhost/x"), 0u);
  EXPECT_EQ(refusal(stores, "longbow://192.0.2.1/x"), 400u);
  try {
    stores.address("longbow://192.0.2.1/x", "to");
    FAIL();
  } catch (const ApiError& error) {
    EXPECT_EQ(error.code, "tls_required");
  }
}

TEST(LongbowStoresTest, AClientServesAllDatasetsOfItsServer) {
  NoLog log;
  int made = 0;
  LongbowStores stores({.hosts = {"a", "b"},
                        .connect =
                            [&](const LongbowAddress& address, const LongbowOptions&) {
                              EXPECT_EQ(address.dataset, "");
                              ++made;
                              return std::make_unique<test::FakeLongbow>();
                            }},
                       log);
  const auto first = stores.client(stores.address("longbow://a/x", "to"));
  EXPECT_EQ(stores.client(stores.address("longbow://a/y", "to")), first);
  EXPECT_NE(stores.client(stores.address("longbow://b/x", "to")), first);
  EXPECT_EQ(made, 2);
}

// What jobs use stands before the pool, which awaits them where a test ends early.

void raise_to(std::atomic<int>& most, int value) {
  int before = most;
  while (before < value && !most.compare_exchange_weak(before, value)) continue;
}

TEST(StorePoolTest, JobsOfALaneFollowEachOther) {
  NoLog log;
  std::atomic<int> inside = 0, most = 0;
  std::vector<int> order;
  StorePool pool(4, 100, log);
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(pool.post({.name = "lane"}, {}, [&, i](const std::stop_token&) {
      raise_to(most, ++inside);
      order.push_back(i);
      --inside;
    }));
  }
  pool.end();
  EXPECT_EQ(order.size(), 20u);
  EXPECT_EQ(most, 1);
  EXPECT_TRUE(std::ranges::is_sorted(order));
}

TEST(StorePoolTest, AnotherLaneDoesNotWait) {
  NoLog log;
  std::promise<void> other;
  StorePool pool(2, 100, log);
  ASSERT_TRUE(pool.post({.name = "a"}, {}, [&](const std::stop_token&) { other.get_future().wait(); }));
  ASSERT_TRUE(pool.post({.name = "a"}, {}, [](const std::stop_token&) { throw std::runtime_error("nobody minds"); }));
  ASSERT_TRUE(pool.post({.name = "b", .store = "b"}, {}, [&](const std::stop_token&) { other.set_value(); }));
  pool.end();
}

TEST(StorePoolTest, RefusesWhenFullAndRunsWhatItTook) {
  NoLog log;
  const test::Gate gate;
  std::atomic<int> ran = 0;
  StorePool pool(1, 2, log);
  ASSERT_TRUE(pool.post({.name = "a"}, {}, [&](const std::stop_token&) {
    gate.pass();
    ++ran;
  }));
  gate.wait_until_reached();
  const auto count = [&](const std::stop_token& stop) { ran += stop.stop_requested() ? 10 : 1; };
  ASSERT_TRUE(pool.post({.name = "a"}, {}, count));
  ASSERT_TRUE(pool.post({.name = "b"}, {}, count));
  EXPECT_FALSE(pool.post({.name = "c"}, {}, count));
  pool.stop();
  gate.open();
  pool.end();
  EXPECT_EQ(ran, 21) << "those that wait hear that they are stopped";
  EXPECT_FALSE(pool.post({.name = "a"}, {}, count));
}

TEST(StorePoolTest, ALaneHasAQuarterOfTheQueueAndHalfOfTheThreads) {
  constexpr StoreLane::Order kAtOnce = StoreLane::Order::at_once;
  NoLog log;
  std::shared_future<void> gone;
  std::atomic<int> inside = 0, most = 0;
  std::promise<void> two, other;
  StorePool pool(4, 8, log);
  std::promise<void> go;  // behind the pool: where the test ends early, it lets go of those that wait
  gone = go.get_future().share();
  const auto wait = [&](const std::stop_token&) {
    const int now = ++inside;
    raise_to(most, now);
    if (now == 2) two.set_value();
    gone.wait();
    --inside;
  };
  const StoreLane slow{.name = "slow", .order = kAtOnce};
  ASSERT_TRUE(pool.post(slow, {}, wait));
  ASSERT_TRUE(pool.post(slow, {}, wait));
  two.get_future().wait();
  const auto nothing = [](const std::stop_token&) {};
  ASSERT_TRUE(pool.post(slow, {}, nothing));
  ASSERT_TRUE(pool.post(slow, {}, nothing));
  EXPECT_FALSE(pool.post(slow, {}, nothing)) << "two of eight wait already";
  ASSERT_TRUE(pool.post({.name = "other", .order = kAtOnce}, {}, [&](const std::stop_token&) { other.set_value(); }));
  other.get_future().wait();  // it has a thread although those of the slow one wait
  go.set_value();
  pool.end();
  EXPECT_EQ(most, 2);
}

TEST(StorePoolTest, AStoreHasAllThreadsButOne) {
  NoLog log;
  std::promise<void> other;
  StorePool pool(3, 100, log);
  std::promise<void> go;  // behind the pool, as above
  const std::shared_future<void> gone = go.get_future().share();
  for (const char* dataset : {"a", "b", "c", "d"}) {
    ASSERT_TRUE(pool.post({.name = dataset, .store = "slow"}, {}, [=](const std::stop_token&) { gone.wait(); }));
  }
  ASSERT_TRUE(pool.post({.name = "e", .store = "other"}, {}, [&](const std::stop_token&) { other.set_value(); }));
  other.get_future().wait();
  go.set_value();
  pool.end();
}

// Its lane is taken, by a store that does not answer.
TEST(StorePoolTest, OneThatIsStoppedDoesNotWaitForItsTurn) {
  NoLog log;
  const test::Gate gate;
  std::promise<void> told;
  StorePool pool(2, 100, log);
  ASSERT_TRUE(pool.post({.name = "lane"}, {}, [&](const std::stop_token&) { gate.pass(); }));
  gate.wait_until_reached();
  std::stop_source stop;
  ASSERT_TRUE(pool.post({.name = "lane"}, stop, [&](const std::stop_token& asked) {
    EXPECT_TRUE(asked.stop_requested());
    told.set_value();
  }));
  stop.request_stop();
  told.get_future().wait();
  gate.open();
  pool.end();
}

std::string refused_for(const char* body) {
  try {
    read_embed_to(Json::parse(body));
  } catch (const ApiError& error) {
    return error.param;
  }
  return {};
}

// Each of the texts gets a copy of them.
TEST(LongbowRequest, PrefixAndSourceAreShort) {
  for (const std::string field : {"prefix", "source"}) {
    const auto body = [&](std::size_t bytes) {
      return R"({"texts":["a"],")" + field + R"(":")" + std::string(bytes, 'x') + R"("})";
    };
    EXPECT_EQ(refused_for(body(4096).c_str()), "");
    EXPECT_EQ(refused_for(body(4097).c_str()), field);
  }
}

TEST(LongbowRequest, TextsHaveIdsAndMetadata) {
  const EmbedToRequest request = read_embed_to(Json::parse(
      R"({"texts":["a",{"text":"b","id":7,"metadata":{"page":3,"kind":"x"}}],"source":"s","columns":["kind","none"]})"));
  ASSERT_EQ(request.texts.size(), 2u);
  EXPECT_EQ(request.texts[0].text, "a");
  EXPECT_EQ(request.texts[0].source, "s");
  EXPECT_EQ(request.texts[0].metadata, "");
  EXPECT_EQ(request.texts[1].id, "7");
  EXPECT_EQ(request.texts[1].metadata, R"({"page":3})");
  EXPECT_EQ(request.texts[1].columns, (std::vector<std::string>{"x", ""}));
  EXPECT_TRUE(request.truncate);
}

// If each name were compared with all before it, this would take minutes.
TEST(LongbowRequest, ColumnsAreTakenOutOfWideMetadata) {
  std::string wide = "{\"kind\":\"x\"";
  for (int i = 0; i < 500'000; ++i) wide += ",\"" + std::to_string(i) + "\":0";
  const EmbedToRequest request = read_embed_to(
      read_json(R"({"texts":[{"text":"b","metadata":)" + wide + R"(}}],"columns":["kind","499999"]})").value);
  ASSERT_EQ(request.texts.size(), 1u);
  EXPECT_EQ(request.texts[0].columns, (std::vector<std::string>{"x", "0"}));
  EXPECT_TRUE(request.texts[0].metadata.starts_with(R"({"0":0,"1":0,)"));
}

TEST(LongbowRequest, WhatIsNoTextIsRefusedByName) {
  for (const char* body :
       {"{}", R"({"texts":[]})", R"({"texts":"a"})", R"({"texts":[1]})", R"({"texts":[" "]})",
        R"({"texts":[{"id":1}]})", R"({"texts":[{"text":"a","id":[]}]})", R"({"texts":[{"text":"a","metadata":"b"}]})",
        R"({"texts":[{"text":"a","more":1}]})", R"({"texts":[{"text":"a","id":1},{"text":"b","id":"1"}]})"}) {
    EXPECT_EQ(refused_for(body), "texts") << body;
  }
  for (const char* columns : {"[1]", R"([""])", R"(["a","a"])", R"(["text"])", R"(["id"])", R"(["metadata"])"}) {
    EXPECT_EQ(refused_for((R"({"texts":["a"],"columns":)" + std::string(columns) + "}").c_str()), "columns") << columns;
  }
}

TEST(LongbowRequest, FiltersAreReadAsTheCommandReadsThem) {
  const StoreSearchRequest request =
      read_store_search(Json::parse(R"({"query":"q","k":3,"filters":["source=a","page>=2"]})"));
  EXPECT_EQ(request.k, 3);
  EXPECT_EQ(request.filters,
            (std::vector<RowFilter>{{"source", Comparison::equal, "a"}, {"page", Comparison::greater_or_equal, "2"}}));
  EXPECT_THROW(read_store_search(Json::parse(R"({"query":"q","filters":["source"]})")), ApiError);
  EXPECT_THROW(read_store_search(Json::parse(R"({"query":" "})")), ApiError);
}

}  // namespace
}  // namespace quarrel
