// The endpoint that Arrow programs call, with a handler of the test's own.
#include "flight/listener.h"

#include <arrow/api.h>
#include <arrow/flight/client.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>

#include "flight/arrow/listener.h"

namespace quarrel {
namespace {

namespace af = arrow::flight;
using namespace std::chrono_literals;

// A vector is a text's length and its first letter.
class Lengths final : public FlightHandler {
 public:
  std::atomic<int> waiting = 0;
  std::atomic<bool> cancelled = false;
  std::string peer;

  void admit(const FlightCall& call) override {
    if (call.authorization != "Bearer secret") throw FlightRefusal(FlightFault::unauthenticated, "no such key");
  }
  FlightVectors embed(const FlightCall& call, std::string_view command, std::vector<std::string> texts) override {
    peer = call.peer;
    if (command == "fail") throw std::runtime_error("a secret of ours");
    if (command == "wait") {
      ++waiting;
      while (!call.cancelled()) std::this_thread::sleep_for(1ms);
      cancelled = true;
      throw FlightRefusal(FlightFault::cancelled, "the caller has gone");
    }
    FlightVectors vectors{.dimension = 2};
    for (const std::string& text : texts) {
      vectors.values.push_back(static_cast<float>(text.size()));
      vectors.values.push_back(text.empty() ? 0.0f : static_cast<float>(text.front()));
    }
    return vectors;
  }
  FlightTable table(const FlightCall&, std::string_view ticket) override {
    if (ticket != "numbers") throw FlightRefusal(FlightFault::not_found, "no such table");
    return {{.name = "name", .values = std::vector<std::string>{"a", "b"}},
            {.name = "count", .values = std::vector<std::int64_t>{1, 2}},
            {.name = "value", .values = std::vector<double>{0.5, 1.5}}};
  }
};

std::shared_ptr<arrow::RecordBatch> batch_of(const std::vector<std::string>& texts) {
  arrow::StringBuilder builder;
  EXPECT_TRUE(builder.AppendValues(texts).ok());
  return arrow::RecordBatch::Make(arrow::schema({arrow::field("text", arrow::utf8())}),
                                  static_cast<std::int64_t>(texts.size()), {builder.Finish().ValueOrDie()});
}

class ListenerTest : public testing::Test {
 protected:
  void SetUp() override { client_ = connect(); }
  std::unique_ptr<af::FlightClient> connect() const {
    return af::FlightClient::Connect(af::Location::ForGrpcTcp("127.0.0.1", listener_->port()).ValueOrDie())
        .ValueOrDie();
  }
  static af::FlightCallOptions with_key(const std::string& key = "secret") {
    af::FlightCallOptions options;
    options.headers = {{"authorization", "Bearer " + key}};
    return options;
  }
  using Exchange = af::FlightClient::DoExchangeResult;
  Exchange open(const std::string& command, const af::FlightCallOptions& options = with_key()) {
    return client_->DoExchange(options, af::FlightDescriptor::Command(command)).ValueOrDie();
  }
  static arrow::Result<std::shared_ptr<arrow::RecordBatch>> answer(Exchange& exchange,
                                                                   const std::shared_ptr<arrow::RecordBatch>& batch) {
    // What is refused may be so before this is written; the reason comes with the reading.
    static_cast<void>(exchange.writer->WriteRecordBatch(*batch));
    ARROW_ASSIGN_OR_RAISE(const af::FlightStreamChunk chunk, exchange.reader->Next());
    return chunk.data;
  }
  // What one batch alone comes to.
  arrow::Status refusal(const std::string& command, const std::shared_ptr<arrow::RecordBatch>& batch,
                        const af::FlightCallOptions& options = with_key()) {
    // Even opening may tell of it, if the listener is quick.
    arrow::Result<Exchange> exchange = client_->DoExchange(options, af::FlightDescriptor::Command(command));
    if (!exchange.ok()) return exchange.status();
    static_cast<void>(exchange->writer->Begin(batch->schema()));
    return answer(*exchange, batch).status();
  }

  const std::shared_ptr<Lengths> handler_ = std::make_shared<Lengths>();
  std::unique_ptr<FlightListener> listener_ = flight::make_listener({.streams = 3}, handler_);
  std::unique_ptr<af::FlightClient> client_;
};

TEST_F(ListenerTest, EachBatchIsAnsweredWithItsVectors) {
  Exchange exchange = open("");
  ASSERT_TRUE(exchange.writer->Begin(batch_of({})->schema()).ok());
  for (const std::vector<std::string>& texts : {std::vector<std::string>{"fox", "a"}, {"dogs"}}) {
    const auto vectors = answer(exchange, batch_of(texts)).ValueOrDie();
    ASSERT_NE(vectors, nullptr);
    ASSERT_EQ(vectors->num_rows(), std::ssize(texts));
    const auto& list = static_cast<const arrow::FixedSizeListArray&>(*vectors->GetColumnByName("vector"));
    ASSERT_EQ(list.value_length(), 2);
    const auto& values = static_cast<const arrow::FloatArray&>(*list.values());
    for (std::int64_t i = 0; i < list.length(); ++i) {
      EXPECT_EQ(values.Value(list.value_offset(i)), static_cast<float>(texts[static_cast<std::size_t>(i)].size()));
    }
  }
  ASSERT_TRUE(exchange.writer->DoneWriting().ok());
  EXPECT_EQ(exchange.reader->Next().ValueOrDie().data, nullptr);
  EXPECT_TRUE(exchange.writer->Close().ok());
  EXPECT_EQ(handler_->peer, "127.0.0.1");
}

TEST_F(ListenerTest, WhoHasNoKeyIsRefusedBeforeItIsHeard) {
  const auto code = [](const arrow::Status& status) { return af::FlightStatusDetail::UnwrapStatus(status)->code(); };
  EXPECT_EQ(code(refusal("", batch_of({"a"}), with_key("wrong"))), af::FlightStatusCode::Unauthenticated);
  EXPECT_EQ(code(client_->DoGet(with_key("wrong"), {"numbers"}).status()), af::FlightStatusCode::Unauthenticated);
  EXPECT_EQ(handler_->peer, "");
}

TEST_F(ListenerTest, WhatIsNoTextIsRefused) {
  const std::vector<std::int32_t> offsets{0, 5, 2};  // the second text would have three bytes less than none
  const auto lying = std::make_shared<arrow::StringArray>(
      2, arrow::Buffer::FromVector(std::vector<std::int32_t>(offsets)), arrow::Buffer::FromString("hello"));
  const auto schema = batch_of({})->schema();
  EXPECT_TRUE(refusal("", arrow::RecordBatch::Make(schema, 2, {lying})).IsInvalid());
  const auto no_utf8 = std::make_shared<arrow::StringArray>(
      1, arrow::Buffer::FromVector(std::vector<std::int32_t>{0, 2}), arrow::Buffer::FromString("\xff\xfe"));
  EXPECT_TRUE(refusal("", arrow::RecordBatch::Make(schema, 1, {no_utf8})).IsInvalid());
  arrow::StringBuilder builder;
  ASSERT_TRUE(builder.AppendNull().ok());
  EXPECT_TRUE(refusal("", arrow::RecordBatch::Make(schema, 1, {builder.Finish().ValueOrDie()})).IsInvalid());
  arrow::Int64Builder numbers;
  ASSERT_TRUE(numbers.Append(1).ok());
  const auto no_text = arrow::RecordBatch::Make(arrow::schema({arrow::field("text", arrow::int64())}), 1,
                                                {numbers.Finish().ValueOrDie()});
  EXPECT_TRUE(refusal("", no_text).IsInvalid());
  EXPECT_EQ(handler_->peer, "");
}

TEST_F(ListenerTest, OurOwnMistakesAreNotTold) {
  const arrow::Status status = refusal("fail", batch_of({"a"}));
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(status.ToString().find("secret"), std::string::npos) << status.ToString();
}

TEST_F(ListenerTest, Tables) {
  const auto table = client_->DoGet(with_key(), {"numbers"}).ValueOrDie()->ToTable().ValueOrDie();
  EXPECT_EQ(table->ColumnNames(), (std::vector<std::string>{"name", "count", "value"}));
  EXPECT_EQ(table->num_rows(), 2);
  EXPECT_TRUE(client_->DoGet(with_key(), {"other"}).status().IsKeyError());
}

TEST_F(ListenerTest, SoManyCallsRunAtOnce) {
  std::vector<Exchange> open_ones;
  for (int i = 0; i < 3; ++i) {
    open_ones.push_back(open(""));
    ASSERT_TRUE(open_ones.back().writer->Begin(batch_of({})->schema()).ok());
    ASSERT_TRUE(answer(open_ones.back(), batch_of({"a"})).ok());
  }
  const arrow::Status status = refusal("", batch_of({"a"}));
  const auto detail = af::FlightStatusDetail::UnwrapStatus(status);
  ASSERT_NE(detail, nullptr) << status.ToString();
  EXPECT_EQ(detail->code(), af::FlightStatusCode::Unavailable);
  for (Exchange& each : open_ones) EXPECT_TRUE(each.writer->Close().ok());
}

TEST_F(ListenerTest, AClientThatLeavesIsNoticed) {
  Exchange exchange = open("wait");
  ASSERT_TRUE(exchange.writer->Begin(batch_of({})->schema()).ok());
  ASSERT_TRUE(exchange.writer->WriteRecordBatch(*batch_of({"a"})).ok());
  while (handler_->waiting == 0) std::this_thread::sleep_for(1ms);
  EXPECT_FALSE(listener_->idle());
  exchange.reader->Cancel();
  while (!handler_->cancelled) std::this_thread::sleep_for(1ms);
}

TEST_F(ListenerTest, ItsEndCancelsWhatRuns) {
  Exchange exchange = open("wait");
  ASSERT_TRUE(exchange.writer->Begin(batch_of({})->schema()).ok());
  ASSERT_TRUE(exchange.writer->WriteRecordBatch(*batch_of({"a"})).ok());
  while (handler_->waiting == 0) std::this_thread::sleep_for(1ms);
  listener_->stop(0ms);
  EXPECT_TRUE(handler_->cancelled);
  EXPECT_FALSE(exchange.reader->Next().ok());
}

TEST_F(ListenerTest, APortThatIsTakenIsToldOf) {
  EXPECT_THROW(flight::make_listener({.port = listener_->port()}, handler_), std::runtime_error);
  EXPECT_THROW(flight::make_listener({.address = "no such address"}, handler_), std::runtime_error);
}

}  // namespace
}  // namespace quarrel
