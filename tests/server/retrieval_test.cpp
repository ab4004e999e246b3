// Questions that are asked with texts of a vector store: what the model reads, what the answer says of it in each
// dialect, and that nobody waits for the store who has left.
#include "server/retrieval.h"

#include <gtest/gtest.h>

#include <latch>

#include "server/longbow_api.h"
#include "server/native_api.h"
#include "server/native_stream.h"
#include "server/native_writer.h"
#include "server/openai_api.h"
#include "server/stored_toy.h"

namespace quarrel {
namespace {

class RetrievalTest : public test::StoredToy {
 protected:
  RetrievalTest() {
    EXPECT_EQ(
        ask(embed_to, texts({{{"text", "the fox is red"}, {"id", "f"}, {"metadata", {{"page", 7}}}}, "dogs bark"}))
            .status,
        200u);
  }
  Json retrieval(const Json& more = Json::object()) const {
    Json wanted{{"model", service_->find("", {}).name},
                {"from", "longbow://localhost/texts"},
                {"k", 1},
                {"template", "{texts} {question}"}};
    wanted.update(more);
    return wanted;
  }
  Json question(const Json& more = Json::object()) const {
    return {{"prompt", "the fox is red"}, {"max_tokens", 2}, {"retrieval", retrieval(more)}};
  }
  Json conversation() const {
    Json chat = question();
    chat.erase("prompt");
    chat["messages"] = {{{"role", "user"}, {"content", "the fox is red"}}};
    return chat;
  }
  // All of an answer in pieces.
  std::string stream(Handler handler, const Json& body) {
    const auto made = exchange(body.dump());
    handler(*service_, made);
    std::string text;
    write_until([&] {
      const http::Exchange::Output output = made->take();
      if (output.has_head && output.whole) text += output.head.body;
      text += output.pieces;
      return output.finished || output.whole;
    });
    return text;
  }
  static void expect_the_fox(const Json& sources) {
    ASSERT_EQ(sources.size(), 1u) << sources;
    EXPECT_EQ(sources[0]["number"], 1);
    EXPECT_EQ(sources[0]["text"], "the fox is red");
    EXPECT_EQ(sources[0]["doc_id"], "f");
    EXPECT_EQ(sources[0]["metadata"], (Json{{"page", 7}}));
    EXPECT_FALSE(sources[0].contains("cut"));
  }
};

TEST_F(RetrievalTest, TheModelReadsTheTextsAndTheAnswerTellsThem) {
  Json plain = question();
  plain.erase("retrieval");
  const Answer without = ask(native_generate, plain);
  ASSERT_EQ(without.status, 200u) << without.body;
  EXPECT_FALSE(without.body.contains("sources"));
  const Answer with = ask(native_generate, question());
  ASSERT_EQ(with.status, 200u) << with.body;
  expect_the_fox(with.body["sources"]);
  EXPECT_GT(with.body["prompt_tokens"], without.body["prompt_tokens"]);
  // What the model reads is the template filled in, to the byte.
  plain["prompt"] = "[1] the fox is red the fox is red";
  EXPECT_EQ(ask(native_generate, plain).body["prompt_tokens"], with.body["prompt_tokens"]);
}

TEST_F(RetrievalTest, StreamsTellThemAtTheirEnd) {
  const std::string text = stream(native_stream, question());
  const std::size_t last = text.rfind("data: ");
  ASSERT_NE(last, std::string::npos) << text;
  const Json end = Json::parse(text.substr(last + 6));
  EXPECT_EQ(end["complete"], true);
  expect_the_fox(end["sources"]);
  EXPECT_EQ(text.find("sources"), text.rfind("sources"));
}

// Beside those of the answer's own prompt: two texts were read.
TEST_F(RetrievalTest, TheQuestionsTokensAreChargedToo) {
  const auto made = exchange(question().dump());
  native_generate(*service_, made);
  http::Exchange::Output output;
  write_until([&] { return (output = made->take()).whole; });
  const auto of_answer = Json::parse(output.head.body)["prompt_tokens"].get<std::size_t>();
  EXPECT_GT(of_answer, 0u);
  EXPECT_GT(made->request().record->facts().prompt_tokens, of_answer);
}

TEST_F(RetrievalTest, ChatCompletionsTellThem) {
  const Answer whole = ask(openai_chat, conversation());
  ASSERT_EQ(whole.status, 200u) << whole.body;
  expect_the_fox(whole.body["sources"]);
  Json streamed = conversation();
  streamed["stream"] = true;
  const std::string text = stream(openai_chat, streamed);
  std::size_t chunks = 0;
  for (std::size_t at = text.find("data: {"); at != std::string::npos; at = text.find("data: {", at + 1)) {
    const Json chunk = Json::parse(text.substr(at + 6, text.find('\n', at) - at - 6));
    EXPECT_EQ(chunk.contains("sources"), !chunk["choices"][0]["finish_reason"].is_null()) << chunk;
    if (!chunk.contains("sources")) continue;
    ++chunks;
    expect_the_fox(chunk["sources"]);
  }
  EXPECT_EQ(chunks, 1u);
}

TEST_F(RetrievalTest, WhatIsFilteredOutIsNotASource) {
  const Answer none = ask(native_generate, question({{"filters", {"id>=100"}}}));
  ASSERT_EQ(none.status, 200u) << none.body;
  EXPECT_EQ(none.body["sources"], Json::array());
  const Answer cut = ask(native_generate, question({{"max_tokens", 8}}));
  ASSERT_EQ(cut.status, 200u) << cut.body;
  ASSERT_EQ(cut.body["sources"].size(), 1u);
  EXPECT_EQ(cut.body["sources"][0]["cut"], true);
}

TEST_F(RetrievalTest, MistakesAreToldBeforeAnyAnswer) {
  Json last_is_not_a_question = conversation();
  last_is_not_a_question["messages"].push_back({{"role", "assistant"}, {"content", "yes"}});
  EXPECT_THROW(ask(openai_chat, last_is_not_a_question), ApiError);
  const auto refused_field = [&](const Json& more) -> std::string {
    try {
      ask(native_generate, question(more));
    } catch (const ApiError& error) {
      return error.param;
    }
    return "taken";
  };
  EXPECT_EQ(refused_field({{"from", "longbow://169.254.169.254/texts"}}), "retrieval.from");
  EXPECT_EQ(refused_field({{"template", "{texts}"}}), "retrieval.template");
  EXPECT_EQ(refused_field({{"k", 0}}), "retrieval.k");
  EXPECT_EQ(refused_field({{"model", ""}}), "retrieval.model");
  EXPECT_EQ(refused_field({{"other", 1}}), "retrieval.other");
  EXPECT_THROW(ask(native_generate, question({{"model", "nobody"}})), ApiError);
  store_->exists = false;
  EXPECT_EQ(ask(native_generate, question()).body["code"], "dataset_not_found");
  EXPECT_NE(stream(native_stream, question()).find("dataset_not_found"), std::string::npos);
}

// The store's threads are all taken, so that the search waits.
class TakenPool {
 public:
  explicit TakenPool(LongbowStores& stores) {
    for (int i = 0; i < 4; ++i) {
      stores.post({.name = std::to_string(i), .store = std::to_string(i)}, {},
                  [go = go_](const std::stop_token&) { go->wait(); });
    }
  }
  ~TakenPool() { go_->count_down(); }

 private:
  const std::shared_ptr<std::latch> go_ = std::make_shared<std::latch>(1);
};

class Ended final : public AnswerReceiver {
 public:
  void accepted(const ResumePoint&) override {}
  bool take(std::span<const AnswerEvent> events, const ResumePoint&) override {
    const std::scoped_lock lock(mutex_);
    for (const AnswerEvent& event : events) {
      if (event.end != nullptr) end_ = event.end;
    }
    return true;
  }
  std::shared_ptr<const AnswerEnd> end() {
    const std::scoped_lock lock(mutex_);
    return end_;
  }

 private:
  std::mutex mutex_;
  std::shared_ptr<const AnswerEnd> end_;
};

TEST_F(RetrievalTest, AStopWhileTheStoreIsAskedIsNoFailure) {
  const auto reader = std::make_shared<Ended>();
  const auto stopped = std::make_shared<std::atomic<bool>>(false);
  const NativeRequest request = read_native_request(question());
  {
    const TakenPool taken(service_->stores());
    const auto retrieval = retrieval_for(*service_, request, {});
    const auto call = start_generation(
        *service_, service_->new_record({.route = "POST /test"}), service_->find("", {}),
        make_native_ask(request, Priority::interactive, retrieval),
        std::make_unique<EventWriter>(reader, EventWriter::Options{.stopped = stopped, .retrieval = retrieval}),
        {.before = retrieval});
    *stopped = true;
    call->cancel();
    // The vector may be there or not: either way the answer ends, at the latest when the store is asked.
  }
  // The call is held by nobody here, as by a connection that has gone: nothing is left of it.
  EXPECT_TRUE(test::eventually(
      [&] { return std::ranges::none_of(service_->registry().list(), &ModelRegistry::Status::in_use); }));
}

TEST_F(RetrievalTest, WhoHoldsTheCallHearsOfItsEnd) {
  const auto reader = std::make_shared<Ended>();
  const auto stopped = std::make_shared<std::atomic<bool>>(false);
  const NativeRequest request = read_native_request(question());
  std::shared_ptr<GenerationCall> call;
  {
    const TakenPool taken(service_->stores());
    const auto retrieval = retrieval_for(*service_, request, {});
    call = start_generation(
        *service_, service_->new_record({.route = "POST /test"}), service_->find("", {}),
        make_native_ask(request, Priority::interactive, retrieval),
        std::make_unique<EventWriter>(reader, EventWriter::Options{.stopped = stopped, .retrieval = retrieval}),
        {.before = retrieval});
    *stopped = true;
    call->cancel();
  }
  ASSERT_TRUE(test::eventually([&] { return reader->end() != nullptr; }));
  EXPECT_EQ(reader->end()->finish_reason, "cancelled");
  EXPECT_FALSE(reader->end()->error);
}

TEST_F(RetrievalTest, TheServersEndIsToldToWhoWaitsForTheStore) {
  const auto made = exchange(question().dump());
  http::Exchange::Output output;
  {
    const TakenPool taken(service_->stores());
    native_generate(*service_, made);
    service_->end_requests("the server is about to end");
  }
  write_until([&] { return (output = made->take()).has_head; });
  EXPECT_EQ(output.head.status, 503u);
}

}  // namespace
}  // namespace quarrel
