// Requests that end in a vector store: every text once, what they answer when the store does not do its part, and that
// nobody waits for it who has left.
#include <gtest/gtest.h>

#include <latch>

#include "server/longbow_api.h"
#include "server/openai_api.h"
#include "server/store_texts.h"
#include "server/stored_toy.h"

namespace quarrel {
namespace {

using test::Fault;

constexpr int kAlwaysBusy = 1 << 30;  // polls: it would be asked for minutes

using StoreCall = test::StoredToy;

TEST_F(StoreCall, StoresEachTextOnce) {
  const Json two = texts({"the fox", {{"text", "a dog"}, {"id", "d"}, {"metadata", {{"page", 7}}}}});
  const Answer first = ask(embed_to, two);
  ASSERT_EQ(first.status, 200u) << first.body;
  EXPECT_EQ(first.body["stored"], 2);
  EXPECT_EQ(first.body["to"], "longbow://localhost:3000/texts?meta=3001");
  const Answer again = ask(embed_to, texts({"the fox", "a cat", "a cat"}));
  ASSERT_EQ(again.status, 200u) << again.body;
  EXPECT_EQ(again.body["stored"], 1);
  EXPECT_EQ(again.body["stored_before"], 1);
  EXPECT_EQ(again.body["repeated"], 1);
  EXPECT_EQ(store_->texts(), (std::map<std::string, int>{{"the fox", 1}, {"a dog", 1}, {"a cat", 1}}));
  EXPECT_EQ(connections_, 1);
}

// What was stored before costs a request nothing, however much it is.
TEST_F(StoreCall, AJournalIsNotReadForEachRequest) {
  std::vector<Json> many;
  for (int i = 0; i < 300; ++i) many.emplace_back("text " + std::to_string(i));
  ASSERT_EQ(ask(embed_to, texts(many)).status, 200u);
  const std::uint64_t before = service_->stores().journals().bytes_read();
  constexpr std::uint64_t kRequests = 10;
  for (std::uint64_t i = 0; i < kRequests; ++i) {
    const Answer answer = ask(embed_to, texts({"text 7", "more " + std::to_string(i)}));
    ASSERT_EQ(answer.status, 200u) << answer.body;
    EXPECT_EQ(answer.body["stored"], 1);
    EXPECT_EQ(answer.body["stored_before"], 1);
  }
  EXPECT_LE(service_->stores().journals().bytes_read() - before, kRequests * 128);
  EXPECT_EQ(store_->rows.size(), 310u);
}

// The store fails in the middle: the next request does not believe what the failed one had in mind.
TEST_F(StoreCall, ARequestThatFailedLeavesTheJournalAsItWas) {
  ASSERT_EQ(ask(embed_to, texts({"a"})).status, 200u);
  store_->fault = Fault::reject;
  store_->fault_at = 0;
  store_->faults = 1 << 30;
  EXPECT_EQ(ask(embed_to, texts({"b", "c"})).status, 400u);
  store_->fault = Fault::none;
  const Answer again = ask(embed_to, texts({"c", "b"}));
  ASSERT_EQ(again.status, 200u) << again.body;
  EXPECT_EQ(again.body["stored"], 2);
  EXPECT_EQ(store_->texts(), (std::map<std::string, int>{{"a", 1}, {"b", 1}, {"c", 1}}));
}

TEST_F(StoreCall, FindsWhatItStored) {
  ASSERT_EQ(ask(embed_to, texts({"the fox", {{"text", "a dog"}, {"id", "d"}, {"metadata", {{"page", 7}}}}})).status,
            200u);
  const Answer found = ask(search_store, {{"from", "longbow://localhost/texts"}, {"query", "a dog"}, {"k", 1}});
  ASSERT_EQ(found.status, 200u) << found.body;
  ASSERT_EQ(found.body["results"].size(), 1u);
  const Json& hit = found.body["results"][0];
  EXPECT_EQ(hit["text"], "a dog");
  EXPECT_EQ(hit["doc_id"], "d");
  EXPECT_EQ(hit["metadata"], (Json{{"page", 7}}));
  EXPECT_NEAR(hit["score"].get<double>(), 1.0, 1e-3);
  const StoreObservations seen = service_->stores().observations();
  std::uint64_t puts = 0;
  for (const std::uint64_t count : seen.times[0].milliseconds.counts) puts += count;
  EXPECT_EQ(puts, 1u);
}

TEST_F(StoreCall, ADatasetThatIsNotThereIsNotFound) {
  EXPECT_EQ(ask(search_store, {{"from", "longbow://localhost/texts"}, {"query", "a"}}).status, 404u);
}

TEST_F(StoreCall, VectorsThatAreReturnedAreStoredToo) {
  const Json body{{"input", {"the fox", "a dog"}}};
  const http::Headers store{{"x-quarrel-store", "longbow://localhost/texts"}};
  const Answer answer = ask(openai_embeddings, body, store);
  ASSERT_EQ(answer.status, 200u) << answer.body;
  EXPECT_EQ(answer.body["data"].size(), 2u);
  const auto stored =
      std::ranges::find_if(answer.headers, [](const auto& each) { return each.first == "x-quarrel-stored"; });
  ASSERT_NE(stored, answer.headers.end());
  EXPECT_EQ(stored->second, "2");
  const std::vector<float> returned = answer.body["data"][0]["embedding"];
  EXPECT_EQ(store_->rows.at(0).vector, returned);
  EXPECT_THROW(ask(openai_embeddings, {{"input", {{1, 2}}}}, store), ApiError) << "tokens are no text";
}

TEST_F(StoreCall, AHeaderThatSaysNothingIsRefused) {
  const Json body{{"input", "the fox"}};
  const std::string store = "longbow://localhost/texts";
  for (const http::Headers& headers : {http::Headers{{"X-Quarrel-Store", ""}},
                                       http::Headers{{"x-quarrel-store", store}, {"x-quarrel-store", store}}}) {
    try {
      ask(openai_embeddings, body, headers);
      ADD_FAILURE() << headers.size();
    } catch (const ApiError& error) {
      EXPECT_EQ(error.status, 400u);
      EXPECT_EQ(error.param, "x-quarrel-store");
    }
  }
  EXPECT_EQ(connections_, 0);
}

// Nor does what was begun for nothing bind those who come later to its columns.
TEST_F(StoreCall, ARequestThatStoredNothingBindsNothing) {
  store_->fault = Fault::reject;
  store_->faults = 1 << 30;
  ASSERT_NE(ask(embed_to, texts({"a"})).status, 200u);
  store_->fault = Fault::none;
  Json other = texts({"a"});
  other["columns"] = {"year"};
  const Answer answer = ask(embed_to, other);
  EXPECT_EQ(answer.status, 200u) << answer.body;
}

TEST_F(StoreCall, HostsThatTheSettingsDoNotNameAreNotReached) {
  Json elsewhere = texts({"a"});
  elsewhere["to"] = "longbow://169.254.169.254/texts";
  EXPECT_THROW(ask(embed_to, elsewhere), ApiError);
  EXPECT_THROW(ask(search_store, {{"from", "longbow://localhost:22/x"}, {"query", "a"}}), ApiError);
  EXPECT_THROW(ask(openai_embeddings, {{"input", "a"}}, {{"x-quarrel-store", "longbow://other/x"}}), ApiError);
  EXPECT_EQ(connections_, 0);
}

TEST_F(StoreCall, AStoreThatFailsIsToldOfWithoutItsAddress) {
  store_->fault = Fault::lose;
  store_->faults = 1000;
  const Answer gone = ask(embed_to, texts({"a"}));
  EXPECT_EQ(gone.status, 502u);
  EXPECT_EQ(gone.body["code"], "store_failed");
  EXPECT_EQ(gone.body.dump().find("fake"), std::string::npos);
  store_->fault = Fault::reject;
  EXPECT_EQ(ask(embed_to, texts({"a"})).status, 400u);
  store_->fault = Fault::refuse;
  EXPECT_EQ(ask(embed_to, texts({"a"})).status, 503u);
  store_->fault = Fault::none;
  EXPECT_EQ(ask(embed_to, texts({"a"})).status, 200u);
  EXPECT_EQ(store_->texts(), (std::map<std::string, int>{{"a", 1}}));
}

// One that is taking in rows for longer than anybody waits: no fault of this server's queues.
TEST_F(StoreCall, AStoreThatStaysBusyIsToldOfWithItsOwnCode) {
  try {
    ask_store(*service_, StoreOperation::put, [] { fail(ErrorKind::busy, "the store is still taking in rows"); });
    FAIL() << "no failure";
  } catch (const ApiError& error) {
    EXPECT_EQ(error.status, 503u);
    EXPECT_EQ(error.code, "store_busy");
    EXPECT_STREQ(error.what(), "the store is still taking in rows");
  }
}

// What the loader has to say names files of the server's machine.
TEST_F(StoreCall, AModuleThatCannotBeLoadedIsToldOfWithoutItsFile) {
  no_client_ = "the Flight client cannot be loaded: /opt/libquarrel_flight.so: file too short";
  for (const Answer& answer :
       {ask(embed_to, texts({"a"})), ask(search_store, {{"from", "longbow://localhost/texts"}, {"query", "a"}})}) {
    EXPECT_EQ(answer.status, 501u);
    EXPECT_EQ(answer.body["code"], "unsupported");
    EXPECT_EQ(answer.body.dump().find("libquarrel"), std::string::npos) << answer.body;
  }
  const auto tells = [](const auto& line) { return line.find("file too short") != std::string::npos; };
  EXPECT_EQ(std::ranges::count_if(log_.lines, tells), 2);
}

// Its columns are remembered as they were.
TEST_F(StoreCall, ADatasetThatWasMadeAnewWithOtherVectorsDiffers) {
  ASSERT_EQ(ask(embed_to, texts({"a"})).status, 200u);
  store_->remembered = store_->schema("texts");
  ++store_->dimension;
  const Answer answer = ask(embed_to, texts({"b"}));
  EXPECT_EQ(answer.status, 400u);
  EXPECT_EQ(answer.body["code"], "dataset_differs") << answer.body;
}

TEST_F(StoreCall, RowsThatAnotherHasStoredAreAddedToWhereThatIsWanted) {
  ASSERT_EQ(ask(embed_to, texts({"a"})).status, 200u);
  std::filesystem::remove_all(journals_.path() / "longbow");
  Json more = texts({"b"});
  const Answer refused = ask(embed_to, more);
  EXPECT_EQ(refused.status, 400u);
  EXPECT_EQ(refused.body["code"], "dataset_has_rows") << refused.body;
  more["append"] = true;
  EXPECT_EQ(ask(embed_to, more).status, 200u);
  EXPECT_EQ(store_->texts(), (std::map<std::string, int>{{"a", 1}, {"b", 1}}));
}

TEST_F(StoreCall, WhoComesWhenTooManyWaitIsRefused) {
  struct Gate {
    std::shared_ptr<std::latch> latch = std::make_shared<std::latch>(1);
    ~Gate() { latch->count_down(); }
  } const gate;
  // Four run once their threads are there, the others wait: then there is no room left.
  constexpr std::size_t kRoom = 4 + 64;
  std::size_t taken = 0;
  ASSERT_TRUE(test::eventually([&] {
    try {
      for (; taken < kRoom; ++taken) {
        service_->stores().post({.name = std::to_string(taken), .store = std::to_string(taken)}, {},
                                [latch = gate.latch](const std::stop_token&) { latch->wait(); });
      }
    } catch (const ApiError& error) {
      EXPECT_EQ(error.status, 503u);
    }
    return taken == kRoom;
  }));
  const Answer refused = ask(embed_to, texts({"a"}));
  EXPECT_EQ(refused.status, 503u);
  EXPECT_TRUE(std::ranges::any_of(refused.headers, [](const auto& each) { return each.first == "Retry-After"; }));
  EXPECT_GE(service_->stores().observations().refused, 1u);
}

// All of a budget, by two of its accounts.
std::vector<http::ByteBudget::Share> all_of(const std::shared_ptr<http::ByteBudget>& budget) {
  std::vector<http::ByteBudget::Share> shares;
  for (const std::uint64_t account : {1u, 2u}) {
    shares.emplace_back(budget, account);
    EXPECT_TRUE(shares.back().grow_to(std::size_t{256} << 20));
  }
  return shares;
}

TEST_F(StoreCall, VectorsThatWaitForAStoreTakeNoRoomFromOthers) {
  const Json plain{{"input", "a"}};
  {
    const auto held = all_of(service_->stored_bytes());
    EXPECT_EQ(ask(embed_to, texts({"a"})).status, 503u);
    EXPECT_EQ(ask(openai_embeddings, plain).status, 200u);
  }
  const auto held = all_of(service_->vector_bytes());
  EXPECT_EQ(ask(embed_to, texts({"a"})).status, 200u);
  EXPECT_EQ(ask(openai_embeddings, plain).status, 503u);
}

TEST_F(StoreCall, EndsWhenItsClientHasGone) {
  ASSERT_EQ(ask(embed_to, texts({"a"})).status, 200u);
  store_->busy_polls = kAlwaysBusy;
  const auto made = exchange(texts({"b"}).dump());
  embed_to(*service_, made);
  ASSERT_TRUE(test::eventually([&] { return store_->busy_polls < kAlwaysBusy; }));
  made->close();
  const auto ended = std::make_shared<std::latch>(1);  // in the same lane: what was there before it has ended
  service_->stores().post({.name = "longbow://localhost:3000/texts?meta=3001"}, {},
                          [ended](const std::stop_token&) { ended->count_down(); });
  EXPECT_TRUE(test::eventually([&] { return ended->try_wait(); }));
  EXPECT_EQ(store_->texts(), (std::map<std::string, int>{{"a", 1}}));
}

TEST_F(StoreCall, EndsWithTheServer) {
  ASSERT_EQ(ask(embed_to, texts({"a"})).status, 200u);
  store_->busy_polls = kAlwaysBusy;
  const auto made = exchange(texts({"b"}).dump());
  embed_to(*service_, made);
  ASSERT_TRUE(test::eventually([&] { return store_->busy_polls < kAlwaysBusy; }));
  service_->end_requests("the server is about to end");
  http::Exchange::Output output;
  ASSERT_TRUE(test::eventually([&] { return (output = made->take()).has_head; }));
  EXPECT_EQ(output.head.status, 503u);
}

// A store that takes a batch and says nothing is the worst of them.
TEST_F(StoreCall, ABatchOnItsWayEndsWhenItsClientHasGone) {
  store_->stall_puts = true;
  const auto made = exchange(texts({"b"}).dump());
  embed_to(*service_, made);
  ASSERT_TRUE(test::eventually([&] { return store_->stalled == 1; }));
  made->close();
  EXPECT_TRUE(test::eventually([&] { return store_->stalled == 0; }));
}

TEST_F(StoreCall, ABatchOnItsWayEndsWithTheServer) {
  store_->stall_puts = true;
  const auto made = exchange(texts({"b"}).dump());
  embed_to(*service_, made);
  ASSERT_TRUE(test::eventually([&] { return store_->stalled == 1; }));
  service_->end_requests("the server is about to end");
  http::Exchange::Output output;
  ASSERT_TRUE(test::eventually([&] { return (output = made->take()).has_head; }));
  EXPECT_EQ(output.head.status, 503u);
  EXPECT_TRUE(test::eventually([&] { return store_->stalled == 0; }));
}

}  // namespace
}  // namespace quarrel
