// The endpoint as a server has it, a served model behind a socket, when several clients call at once.
#include <arrow/api.h>
#include <arrow/flight/client.h>
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "flight/arrow/listener.h"
#include "flight/arrow_caller.h"
#include "server/admission.h"
#include "server/flight_api.h"
#include "server/served_toy.h"
#include "server/watch/metrics.h"

namespace quarrel::test {
namespace {

std::vector<float> vectors_of(const arrow::RecordBatch& batch) {
  const auto& list = static_cast<const arrow::FixedSizeListArray&>(*batch.GetColumnByName("vector"));
  const auto& values = static_cast<const arrow::FloatArray&>(*list.values());
  return {values.raw_values() + list.value_offset(0), values.raw_values() + list.value_offset(list.length())};
}

class ServedFlight : public ServedToy {
 protected:
  ServedFlight() {
    AdmissionOptions options;
    options.keys.single_key = "secret";
    admission_ = std::make_unique<RequestAdmission>(options, "127.0.0.1", service_->limits(), log_);
    service_->set_metrics(std::make_shared<Metrics>(MetricSources{.version = "test"}));
    handler_ = make_flight_handler(*service_, [this](const http::Request& request) {
      RequestFacts facts{.id = request.id, .address = request.address};
      http::Admission admission = admission_->decide(request, service_->ready(), facts);
      admission.record = service_->new_record(std::move(facts));
      return admission;
    });
    listener_ = flight::make_listener({}, handler_);
  }

  // What each text is when nobody else asks.
  std::map<std::string, std::vector<float>> alone(const std::vector<std::string>& texts) const {
    const FlightCall call{.authorization = "Bearer secret", .peer = "127.0.0.1"};
    std::map<std::string, std::vector<float>> vectors;
    for (const std::string& text : texts) vectors[text] = handler_->embed(call, "", {text}).values;
    return vectors;
  }

  // As a client does: asks for two texts at a time, beginning with number `first`, and looks at the tables in between.
  // How often the vectors were what they should be.
  int right_answers(const std::vector<std::string>& texts, const std::map<std::string, std::vector<float>>& expected,
                    std::size_t first) const {
    const auto client = connect_flight(listener_->port());
    FlightExchange exchange = client->DoExchange(with_key(), arrow::flight::FlightDescriptor::Command("")).ValueOrDie();
    EXPECT_TRUE(exchange.writer->Begin(batch_of({})->schema()).ok());
    int right = 0;
    for (std::size_t i = 0; i < texts.size(); ++i) {
      const std::string& one = texts[(first + i) % texts.size()];
      const std::string& other = texts[(first + 2 * i) % texts.size()];
      std::vector<float> wanted = expected.at(one);
      wanted.insert(wanted.end(), expected.at(other).begin(), expected.at(other).end());
      const auto answered = answer(exchange, batch_of({one, other}));
      EXPECT_TRUE(answered.ok()) << answered.status().ToString();
      if (answered.ok() && *answered != nullptr && vectors_of(**answered) == wanted) ++right;
      for (const char* name : {"models", "stats"}) {
        const auto table = client->DoGet(with_key(), {name});
        EXPECT_TRUE(table.ok() && (*table)->ToTable().ok()) << name;
      }
    }
    EXPECT_TRUE(exchange.writer->DoneWriting().ok());
    EXPECT_TRUE(exchange.writer->Close().ok());
    return right;
  }

  std::unique_ptr<RequestAdmission> admission_;
  std::shared_ptr<FlightHandler> handler_;
  std::unique_ptr<FlightListener> listener_;  // last: it calls the others
};

TEST_F(ServedFlight, FourClientsAtOnceHaveTheirOwnVectors) {
  const std::vector<std::string> texts{"Hello", "there", "Hello there", "a dog", "the fox"};
  const auto expected = alone(texts);
  std::atomic<int> right = 0;
  std::vector<std::jthread> clients;
  for (std::size_t first = 0; first < 4; ++first) {
    clients.emplace_back([&, first] { right += right_answers(texts, expected, first); });
  }
  clients.clear();
  EXPECT_EQ(right, 4 * std::ssize(texts));
}

}  // namespace
}  // namespace quarrel::test
