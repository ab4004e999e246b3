// Vectors over Flight without a socket: the same keys and limits, and the statuses that Flight has.
#include "server/flight_api.h"

#include <gtest/gtest.h>

#include "server/admission.h"
#include "server/served_toy.h"
#include "server/watch/metrics.h"

namespace quarrel {
namespace {

class FlightApi : public test::ServedToy {
 protected:
  FlightApi() {
    AdmissionOptions options;
    options.keys.single_key = "secret";
    admission_ = std::make_unique<RequestAdmission>(options, "127.0.0.1", service_->limits(), log_);
    service_->set_metrics(metrics_);
    handler_ = make_flight_handler(*service_, [this](const http::Request& request) {
      ids_.push_back(request.id);
      RequestFacts facts{.id = request.id, .address = request.address};
      http::Admission admission = admission_->decide(request, service_->ready(), facts);
      body_bytes_ = admission.body_bytes;
      if (caller_ != nullptr) facts.caller = caller_;
      admission.record = service_->new_record(std::move(facts));
      return admission;
    });
  }
  static FlightCall caller(std::string key) {
    return {.authorization = "Bearer " + std::move(key), .peer = "127.0.0.1", .cancelled = [] { return false; }};
  }
  FlightFault fault_of(const FlightCall& call, const std::string& command) {
    try {
      handler_->embed(call, command, {"a"});
    } catch (const FlightRefusal& refusal) {
      return refusal.fault();
    }
    ADD_FAILURE() << command;
    return FlightFault::internal;
  }

  const std::shared_ptr<Metrics> metrics_ = std::make_shared<Metrics>(MetricSources{.version = "test"});
  std::shared_ptr<const Caller> caller_;  // that keys are taken for; null: whoever they are
  std::vector<std::string> ids_;          // of requests that wanted to be admitted
  std::uint64_t body_bytes_ = 0;          // that the last of them might have
  std::unique_ptr<RequestAdmission> admission_;
  std::shared_ptr<FlightHandler> handler_;
};

TEST_F(FlightApi, AVectorAText) {
  const FlightVectors vectors = handler_->embed(caller("secret"), "", {"Hello", "there"});
  ASSERT_GT(vectors.dimension, 0);
  EXPECT_EQ(vectors.values.size(), 2 * static_cast<std::size_t>(vectors.dimension));
  const FlightVectors alone = handler_->embed(caller("secret"), R"({"truncate": false})", {"there"});
  EXPECT_TRUE(std::equal(alone.values.begin(), alone.values.end(), vectors.values.begin() + vectors.dimension));
}

TEST_F(FlightApi, WithoutTextsTheWidth) {
  const std::int32_t width = handler_->embed(caller("secret"), "", {"Hello"}).dimension;
  const FlightVectors none = handler_->embed(caller("secret"), "", {});
  EXPECT_EQ(none.dimension, width);
  EXPECT_TRUE(none.values.empty());
  EXPECT_EQ(handler_->embed(caller("secret"), R"({"dimensions": 3})", {}).dimension, 3);
  const auto fault = [&](const FlightCall& call, const std::string& command) {
    try {
      handler_->embed(call, command, {});
    } catch (const FlightRefusal& refusal) {
      EXPECT_STRNE(refusal.what(), "refused");
      return refusal.fault();
    }
    ADD_FAILURE() << command;
    return FlightFault::internal;
  };
  EXPECT_EQ(fault(caller("wrong"), ""), FlightFault::unauthenticated);
  EXPECT_EQ(fault(caller("secret"), R"({"model": "nobody"})"), FlightFault::not_found);
  EXPECT_EQ(fault(caller("secret"), R"({"dimensions": 1000000})"), FlightFault::invalid);
}

TEST_F(FlightApi, ManyTextsAreSeveralRequests) {
  const FlightVectors vectors = handler_->embed(caller("secret"), "", std::vector<std::string>(2100, "a"));
  EXPECT_EQ(vectors.values.size(), 2100 * static_cast<std::size_t>(vectors.dimension));
}

TEST_F(FlightApi, EveryRequestHasItsId) {
  handler_->embed(caller("secret"), "", std::vector<std::string>(2100, "a"));
  handler_->embed(caller("secret"), "", {"a"});
  ASSERT_EQ(ids_.size(), 3u);
  EXPECT_EQ(ids_[1], ids_[0] + "-2");
  EXPECT_NE(ids_[2], ids_[0]);
  EXPECT_TRUE(http::usable_request_id(ids_[2])) << ids_[2];
  FlightCall named = caller("secret");
  named.request_id = "mine";
  handler_->embed(named, "", {"a"});
  EXPECT_EQ(ids_.back(), "mine");
  named.request_id = "a line\nof a log";
  handler_->embed(named, "", {"a"});
  EXPECT_TRUE(http::usable_request_id(ids_.back())) << ids_.back();
}

TEST_F(FlightApi, CallersHaveAccounts) {
  EXPECT_EQ(handler_->admit(caller("secret")), handler_->admit(caller("secret")));
  EXPECT_THROW(handler_->admit(caller("wrong")), FlightRefusal);
}

TEST_F(FlightApi, FaultsAreFlights) {
  EXPECT_EQ(fault_of(caller("wrong"), ""), FlightFault::unauthenticated);
  EXPECT_EQ(fault_of({.peer = "127.0.0.1"}, ""), FlightFault::unauthenticated);
  EXPECT_EQ(fault_of(caller("secret"), R"({"model": "nobody"})"), FlightFault::not_found);
  EXPECT_EQ(fault_of(caller("secret"), "{"), FlightFault::invalid);
  EXPECT_EQ(fault_of(caller("secret"), R"({"no_such_field": 1})"), FlightFault::invalid);
  EXPECT_EQ(fault_of(caller("secret"), R"({"prefix": ")" + std::string(4097, 'x') + "\"}"), FlightFault::invalid);
  service_->begin_drain();
  EXPECT_EQ(fault_of(caller("secret"), ""), FlightFault::unavailable);
}

TEST_F(FlightApi, TextsHaveTheRoomOfABody) {
  handler_->embed(caller("secret"), "", {"a"});
  ASSERT_GT(body_bytes_, 0u);
  const std::string half(body_bytes_ / 2 + 1, 'a');
  try {
    handler_->embed(caller("secret"), "", {half, half});
    FAIL();
  } catch (const FlightRefusal& refusal) {
    EXPECT_EQ(refusal.fault(), FlightFault::invalid);
    EXPECT_NE(std::string(refusal.what()).find(std::to_string(body_bytes_) + " bytes"), std::string::npos)
        << refusal.what();
  }
}

// Over HTTP and here together.
TEST_F(FlightApi, VectorsOnTheirWayHaveABound) {
  {
    std::vector<http::ByteBudget::Share> all;
    for (const std::uint64_t account : {1u, 2u}) {
      all.emplace_back(service_->vector_bytes(), account);
      ASSERT_TRUE(all.back().grow_to(std::size_t{256} << 20));
    }
    EXPECT_EQ(fault_of(caller("secret"), ""), FlightFault::unavailable);
  }
  EXPECT_FALSE(handler_->embed(caller("secret"), "", {"a"}).values.empty());
}

TEST_F(FlightApi, AKeyHasItsModels) {
  const auto models = [this] { return std::get<0>(handler_->table(caller("secret"), "models").at(0).values); };
  const std::vector<std::string> all = models();
  ASSERT_EQ(all.size(), 1u);
  caller_ = std::make_shared<const Caller>(Caller{.models = {"another"}});
  EXPECT_EQ(fault_of(caller("secret"), R"({"model": ")" + all.front() + "\"}"), FlightFault::not_found);
  EXPECT_EQ(fault_of(caller("secret"), ""), FlightFault::not_found);
  EXPECT_TRUE(models().empty());
  caller_ = std::make_shared<const Caller>(Caller{.models = {all.front()}});
  EXPECT_FALSE(handler_->embed(caller("secret"), "", {"a"}).values.empty());
  EXPECT_EQ(models(), all);
}

TEST_F(FlightApi, Tables) {
  const FlightTable models = handler_->table(caller("secret"), "models");
  ASSERT_EQ(models.size(), 3u);
  EXPECT_EQ(std::get<0>(models[0].values).size(), 1u);
  const FlightTable figures = handler_->table(caller("secret"), "stats");
  EXPECT_EQ(std::get<0>(figures[0].values).size(), std::get<2>(figures[2].values).size());
  EXPECT_THROW(handler_->table(caller("secret"), "other"), FlightRefusal);
  EXPECT_THROW(handler_->table(caller("wrong"), "models"), FlightRefusal);
}

TEST_F(FlightApi, FiguresAreThoseOfTheCallersModels) {
  for (const char* model : {"mine", "theirs"}) metrics_->ended({.model = model});
  const auto labels = [this] {
    const FlightTable figures = handler_->table(caller("secret"), "stats");
    std::string all;
    for (const std::string& each : std::get<0>(figures.at(1).values)) all += each;
    return all;
  };
  EXPECT_NE(labels().find("theirs"), std::string::npos);
  caller_ = std::make_shared<const Caller>(Caller{.models = {"mine"}});
  EXPECT_NE(labels().find("mine"), std::string::npos);
  EXPECT_EQ(labels().find("theirs"), std::string::npos);
}

}  // namespace
}  // namespace quarrel
