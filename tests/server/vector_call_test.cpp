// Requests for vectors: what they cost, what bounds them, and what a key that may only use models gets of them.
#include <gtest/gtest.h>

#include <new>

#include "server/embedding_call.h"
#include "server/ollama_api.h"
#include "server/openai_api.h"
#include "server/served_toy.h"

namespace quarrel {
namespace {

class VectorCall : public test::ServedToy {
 protected:
  // The status of the answer to so many texts.
  unsigned status_of(EmbeddingAsk ask, const std::shared_ptr<http::Exchange>& exchange) {
    start_embedding_call(*service_, exchange, service_->find("", {}), std::move(ask),
                         {.respond = [](auto, double) { return http::Response{}; }, .fail = plain_error});
    http::Exchange::Output output;
    EXPECT_TRUE(test::eventually([&] { return (output = exchange->take()).has_head; }));
    return output.head.status;
  }
  // By OpenAI's clients.
  Json answer_to(const Json& body) {
    const auto asked = exchange(body.dump());
    openai_embeddings(*service_, asked);
    http::Exchange::Output output;
    EXPECT_TRUE(test::eventually([&] { return (output = asked->take()).has_head; }));
    return Json::parse(output.head.body);
  }
};

TEST_F(VectorCall, ThatIsRefusedIsNotCharged) {
  const Caller caller{.limits = {.tokens_per_minute = 4}};
  const auto other = service_->limits().admit(caller, Limits::Kind::work).ticket;
  const auto asked = exchange();
  asked->request().record->update(
      [&](RequestFacts& facts) { facts.ticket = service_->limits().admit(caller, Limits::Kind::work).ticket; });
  ASSERT_FALSE(other->reserve(4)) << "it has all that there is";
  EXPECT_EQ(status_of({.inputs = {std::string(100, 'a')}}, asked), 429u);
  EXPECT_EQ(asked->request().record->facts().prompt_tokens, 0u);
  const auto second = exchange();
  EXPECT_EQ(status_of({.inputs = {std::string("a")}}, second), 200u);
  EXPECT_GT(second->request().record->facts().prompt_tokens, 0u);
}

TEST_F(VectorCall, IdsAreCutAsTextsAre) {
  Json body{{"input", {std::vector<TokenId>(3000, 5), {1, 2}}}};
  const Json refused = answer_to(body);
  EXPECT_EQ(refused["error"]["param"], "input") << refused;
  EXPECT_EQ(refused["error"]["code"], "context_length_exceeded") << refused;
  EXPECT_NE(refused["error"]["message"].get<std::string>().find("truncate"), std::string::npos) << refused;
  body["truncate"] = true;
  EXPECT_EQ(answer_to(body)["usage"]["prompt_tokens"], 512 + 2);
}

TEST_F(VectorCall, DimensionsAreNoFaultOfTheText) {
  const Json refused = answer_to({{"input", "a"}, {"dimensions", 5000}});
  EXPECT_EQ(refused["error"]["param"], "dimensions") << refused;
  EXPECT_EQ(refused["error"]["code"], "invalid_value") << refused;
}

TEST_F(VectorCall, WhoseAnswerCannotBeWrittenIsAnswered) {
  const auto asked = exchange();
  start_embedding_call(
      *service_, asked, service_->find("", {}), {.inputs = {std::string("a")}},
      {.respond = [](auto, double) -> http::Response { throw std::bad_alloc(); }, .fail = plain_error});
  http::Exchange::Output output;
  ASSERT_TRUE(test::eventually([&] { return (output = asked->take()).has_head; }));
  EXPECT_GE(output.head.status, 500u);
}

TEST_F(VectorCall, WaitsItsTurnWhereOthersFillWhatThereIs) {
  constexpr std::size_t kHalf = std::size_t{256} << 20;  // more nobody has
  http::ByteBudget::Share first(service_->vector_bytes(), 1), second(service_->vector_bytes(), 2);
  ASSERT_TRUE(first.grow_to(kHalf) && second.grow_to(kHalf));
  EXPECT_EQ(status_of({.inputs = {std::string("a")}}, exchange()), 503u);
}

class KeyOfUse : public test::ServedToy {
 protected:
  std::shared_ptr<http::Exchange> asked(const std::string& body) {
    const auto made = exchange(body);
    made->request().record->update([](RequestFacts& facts) {
      facts.caller = std::make_shared<const Caller>(Caller{.name = "somebody", .role = Role::use});
    });
    return made;
  }
};

TEST_F(KeyOfUse, LoadsNoModelByAskingForNothing) {
  for (const char* body : {"{}", R"({"input":""})", R"({"input":[]})"}) {
    try {
      ollama_embed(*service_, asked(body));
      ADD_FAILURE() << body;
    } catch (const ApiError& error) {
      EXPECT_EQ(error.status, 403u);
    }
  }
  EXPECT_TRUE(service_->registry().list().empty());
}

TEST_F(KeyOfUse, DoesNotSayHowLongAModelStays) {
  for (const char* keep_alive : {"0", "-1"}) {
    const auto made = asked(std::string(R"({"input":"a","keep_alive":)") + keep_alive + "}");
    ollama_embed(*service_, made);
    EXPECT_TRUE(test::eventually([&] { return made->take().has_head; }));
    EXPECT_TRUE(test::eventually(
        [&] { return std::ranges::none_of(service_->registry().list(), &ModelRegistry::Status::in_use); }));
    const auto models = service_->registry().list();
    ASSERT_EQ(models.size(), 1u) << keep_alive;
    EXPECT_TRUE(models.front().expires) << keep_alive;
  }
}

}  // namespace
}  // namespace quarrel
