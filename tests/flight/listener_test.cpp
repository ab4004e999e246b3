// The endpoint that Arrow programs call, with a handler of the test's own.
#include "flight/listener.h"

#include <arrow/api.h>
#include <arrow/flight/client.h>
#include <arrow/util/compression.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "flight/arrow/grpc_settings.h"
#include "flight/arrow/listener.h"
#include "flight/arrow/peer_socket.h"
#include "flight/arrow_caller.h"

namespace quarrel {
namespace {

namespace af = arrow::flight;
using test::answer;
using test::batch_of;
using test::with_key;
using namespace std::chrono_literals;

// A vector is a text's length and its first letter.
class Lengths final : public FlightHandler {
 public:
  std::atomic<int> waiting = 0;
  std::atomic<bool> cancelled = false;
  static constexpr std::int32_t kMuch = 1 << 22;  // more than sockets hold for a client that does not read

  std::uint64_t admit(const FlightCall& call) override {
    if (call.authorization == "Bearer secret") return 1;
    if (call.authorization == "Bearer other") return 2;
    throw FlightRefusal(FlightFault::unauthenticated, "no such key");
  }
  FlightVectors embed(const FlightCall& call, std::string_view command, std::vector<std::string> texts) override {
    note(call.peer, call.request_id);
    if (command == "much") {
      ++waiting;
      return {.dimension = kMuch, .values = std::vector<float>(texts.size() * kMuch)};
    }
    if (command == "fail") throw std::runtime_error("a secret of ours");
    if (command == "wait") {
      ++waiting;
      while (!call.cancelled()) std::this_thread::sleep_for(1ms);
      cancelled = true;
      throw FlightRefusal(FlightFault::cancelled, "the caller has gone");
    }
    FlightVectors vectors{.dimension = 2};
    if (command == "shrink" && std::exchange(has_answered_, true)) vectors.dimension = 1;
    for (const std::string& text : texts) {
      vectors.values.push_back(static_cast<float>(text.size()));
      if (vectors.dimension > 1) vectors.values.push_back(text.empty() ? 0.0f : static_cast<float>(text.front()));
    }
    return vectors;
  }
  FlightTable table(const FlightCall&, std::string_view ticket) override {
    if (ticket != "numbers") throw FlightRefusal(FlightFault::not_found, "no such table");
    return {{.name = "name", .values = std::vector<std::string>{"a", "b"}},
            {.name = "count", .values = std::vector<std::int64_t>{1, 2}},
            {.name = "value", .values = std::vector<double>{0.5, 1.5}}};
  }

  // Who called last, by which name; nothing: nobody has.
  std::string peer() const {
    const std::scoped_lock lock(mutex_);
    return peer_;
  }
  std::string request_id() const {
    const std::scoped_lock lock(mutex_);
    return request_id_;
  }
  void note(const std::string& peer, const std::string& request_id) {
    const std::scoped_lock lock(mutex_);
    peer_ = peer;
    request_id_ = request_id;
  }

 private:
  mutable std::mutex mutex_;
  std::string peer_, request_id_;
  bool has_answered_ = false;
};

template <typename Condition>
bool eventually(const Condition& condition) {
  for (int i = 0; i < 60'000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(1ms);
  }
  return false;
}

class ListenerTest : public testing::Test {
 protected:
  void SetUp() override { client_ = connect(); }
  // In place of the one that is there.
  void listen(const FlightListenerOptions& options) {
    listener_ = flight::make_listener(options, handler_);
    client_ = connect();
  }
  std::unique_ptr<af::FlightClient> connect() const { return test::connect_flight(listener_->port()); }
  using Exchange = test::FlightExchange;
  Exchange open(const std::string& command, const af::FlightCallOptions& options = with_key()) {
    return client_->DoExchange(options, af::FlightDescriptor::Command(command)).ValueOrDie();
  }
  static bool is_unavailable(const arrow::Status& status) {
    const auto detail = af::FlightStatusDetail::UnwrapStatus(status);
    return detail != nullptr && detail->code() == af::FlightStatusCode::Unavailable;
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
  std::unique_ptr<FlightListener> listener_ = flight::make_listener({.calls = 3, .calls_of_caller = 2}, handler_);
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
  EXPECT_EQ(handler_->peer(), "127.0.0.1");
}

// Programs that send what they have batch by batch count on an answer to each.
TEST_F(ListenerTest, ABatchWithoutRowsIsAnswered) {
  Exchange exchange = open("");
  ASSERT_TRUE(exchange.writer->Begin(batch_of({})->schema()).ok());
  for (const std::vector<std::string>& texts : {std::vector<std::string>{}, {"fox"}, {}}) {
    const auto vectors = answer(exchange, batch_of(texts)).ValueOrDie();
    ASSERT_NE(vectors, nullptr);
    EXPECT_EQ(vectors->num_rows(), std::ssize(texts));
    EXPECT_TRUE(vectors->column(0)->type()->Equals(arrow::fixed_size_list(arrow::float32(), 2)));
    EXPECT_TRUE(vectors->ValidateFull().ok());
  }
  EXPECT_TRUE(exchange.writer->Close().ok());
}

TEST_F(ListenerTest, VectorsKeepTheirWidth) {
  Exchange exchange = open("shrink");
  ASSERT_TRUE(exchange.writer->Begin(batch_of({})->schema()).ok());
  ASSERT_TRUE(answer(exchange, batch_of({"fox", "a"})).ok());
  EXPECT_TRUE(is_unavailable(answer(exchange, batch_of({"fox", "a"})).status()));
}

bool has_ipv6() {
  const int number = ::socket(AF_INET6, SOCK_STREAM, 0);
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_addr = in6addr_loopback;
  const bool bound = number >= 0 && ::bind(number, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  if (number >= 0) ::close(number);
  return bound;
}

TEST_F(ListenerTest, AnAddressMayBeOneOfIpv6) {
  if (!has_ipv6()) GTEST_SKIP() << "this machine has no ::1";
  listener_ = flight::make_listener({.address = "::1"}, handler_);
  client_ = test::connect_flight(listener_->port(), "[::1]");
  EXPECT_TRUE(refusal("", batch_of({"a"})).ok());
  EXPECT_EQ(handler_->peer(), "::1");
}

TEST_F(ListenerTest, WhoHasNoKeyIsRefusedBeforeItIsHeard) {
  const auto code = [](const arrow::Status& status) { return af::FlightStatusDetail::UnwrapStatus(status)->code(); };
  EXPECT_EQ(code(refusal("", batch_of({"a"}), with_key("wrong"))), af::FlightStatusCode::Unauthenticated);
  EXPECT_EQ(code(client_->DoGet(with_key("wrong"), {"numbers"}).status()), af::FlightStatusCode::Unauthenticated);
  EXPECT_EQ(handler_->peer(), "");
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
  EXPECT_EQ(handler_->peer(), "");
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
  for (const char* key : {"secret", "other", "secret"}) {
    open_ones.push_back(open("", with_key(key)));
    ASSERT_TRUE(open_ones.back().writer->Begin(batch_of({})->schema()).ok());
    ASSERT_TRUE(answer(open_ones.back(), batch_of({"a"})).ok());
  }
  EXPECT_TRUE(is_unavailable(refusal("", batch_of({"a"}), with_key("other"))));
  EXPECT_TRUE(is_unavailable(client_->DoGet(with_key("other"), {"numbers"}).status())) << "calls of any kind";
  for (Exchange& each : open_ones) EXPECT_TRUE(each.writer->Close().ok());
  EXPECT_TRUE(refusal("", batch_of({"a"})).ok());
}

TEST_F(ListenerTest, NobodyTakesAllPlaces) {
  std::vector<Exchange> open_ones;
  for (int i = 0; i < 2; ++i) {
    open_ones.push_back(open(""));
    ASSERT_TRUE(open_ones.back().writer->Begin(batch_of({})->schema()).ok());
    ASSERT_TRUE(answer(open_ones.back(), batch_of({"a"})).ok());
  }
  EXPECT_TRUE(is_unavailable(refusal("", batch_of({"a"}))));
  EXPECT_TRUE(refusal("", batch_of({"a"}), with_key("other")).ok());
  for (Exchange& each : open_ones) EXPECT_TRUE(each.writer->Close().ok());
}

// Each on a connection of its own, which is cut with it.
TEST_F(ListenerTest, WhoSendsNothingLosesItsPlace) {
  listen({.calls = 2, .message_time = 300ms});
  std::vector<std::unique_ptr<af::FlightClient>> clients;
  std::vector<Exchange> silent;
  for (int i = 0; i < 2; ++i) {
    clients.push_back(connect());
    silent.push_back(clients.back()->DoExchange(with_key(), af::FlightDescriptor::Command("")).ValueOrDie());
  }
  for (Exchange& each : silent) EXPECT_FALSE(each.reader->Next().ok());
  EXPECT_TRUE(eventually([&] { return refusal("", batch_of({"a"})).ok(); }));
}

// A few bytes now and then keep no place: only texts do.
TEST_F(ListenerTest, WhoSendsNoTextsLosesItsPlace) {
  constexpr auto kTime = 2000ms;
  listen({.calls = 1, .message_time = kTime});
  const auto nothing = arrow::Buffer::FromString("x");
  for (const bool is_batch : {false, true}) {
    const auto client = connect();
    Exchange exchange = client->DoExchange(with_key(), af::FlightDescriptor::Command("")).ValueOrDie();
    ASSERT_TRUE(exchange.writer->Begin(batch_of({})->schema()).ok());
    // One that brings texts in between has all of its time again.
    std::this_thread::sleep_for(kTime / 4);
    const auto begun = Clock::now();
    ASSERT_TRUE(answer(exchange, batch_of({"a"})).ok());
    bool is_open = true;
    while (is_open && Clock::now() - begun < 60s) {
      std::this_thread::sleep_for(kTime / 10);
      if (is_batch) {
        is_open = answer(exchange, batch_of({})).ok();
      } else {
        is_open = exchange.writer->WriteMetadata(nothing).ok();
      }
    }
    EXPECT_FALSE(is_open) << is_batch;
    EXPECT_GE(Clock::now() - begun, kTime - kTime / 10) << "it had its time";
    EXPECT_TRUE(eventually([&] { return refusal("", batch_of({"a"})).ok(); })) << is_batch;
  }
}

TEST_F(ListenerTest, WhoTakesNothingLosesItsPlace) {
  listen({.calls = 1, .message_time = 2s});
  const auto deaf = connect();
  Exchange exchange = deaf->DoExchange(with_key(), af::FlightDescriptor::Command("much")).ValueOrDie();
  ASSERT_TRUE(exchange.writer->Begin(batch_of({})->schema()).ok());
  ASSERT_TRUE(exchange.writer->WriteRecordBatch(*batch_of({"a", "b"})).ok());
  EXPECT_TRUE(eventually([&] { return handler_->waiting > 0 && listener_->idle(); }));
  EXPECT_TRUE(eventually([&] { return refusal("", batch_of({"a"})).ok(); }));
  exchange.reader->Cancel();
}

// Some kilobytes on their way, a gigabyte when they are read.
TEST_F(ListenerTest, WhatIsCompressedIsRefused) {
  const auto zeros = arrow::AllocateBuffer(std::int64_t{64} << 20).ValueOrDie();
  std::memset(zeros->mutable_data(), 'a', static_cast<std::size_t>(zeros->size()));
  const auto texts = std::make_shared<arrow::StringArray>(
      1, arrow::Buffer::FromVector(std::vector<std::int32_t>{0, static_cast<std::int32_t>(zeros->size())}),
      std::make_shared<arrow::Buffer>(zeros->data(), zeros->size()));
  const auto batch = arrow::RecordBatch::Make(batch_of({})->schema(), 1, {texts});
  for (const arrow::Compression::type kind : {arrow::Compression::ZSTD, arrow::Compression::LZ4_FRAME}) {
    af::FlightCallOptions options = with_key();
    options.write_options.codec = arrow::util::Codec::Create(kind).ValueOrDie();
    const std::int64_t before = arrow::default_memory_pool()->total_bytes_allocated();
    const arrow::Status status = refusal("", batch, options);
    EXPECT_TRUE(status.IsInvalid()) << status.ToString();
    EXPECT_NE(status.ToString().find("compressed"), std::string::npos) << status.ToString();
    // The sender's share: a buffer that its codec asks for.
    EXPECT_LT(arrow::default_memory_pool()->total_bytes_allocated() - before, 2 * zeros->size());
  }
  EXPECT_EQ(handler_->peer(), "");
}

TEST_F(ListenerTest, DictionariesAreRefused) {
  arrow::StringDictionaryBuilder builder;
  ASSERT_TRUE(builder.Append("a").ok());
  const auto column = builder.Finish().ValueOrDie();
  const auto schema = arrow::schema({arrow::field("kind", column->type()), arrow::field("text", arrow::utf8())});
  const auto batch = arrow::RecordBatch::Make(schema, 1, {column, batch_of({"a"})->column(0)});
  const arrow::Status status = refusal("", batch);
  EXPECT_TRUE(status.IsInvalid()) << status.ToString();
  EXPECT_NE(status.ToString().find("dictionaries"), std::string::npos) << status.ToString();
}

TEST_F(ListenerTest, AMessageHasItsLimit) {
  listen({.message_bytes = 1 << 20});
  EXPECT_TRUE(refusal("", batch_of({std::string(900'000, 'a')})).ok());
  handler_->note("", "");
  const arrow::Status status = refusal("", batch_of({std::string(1'100'000, 'a')}));
  EXPECT_FALSE(status.ok());
  EXPECT_NE(status.ToString().find("larger than max"), std::string::npos) << status.ToString();
  EXPECT_EQ(handler_->peer(), "");
}

TEST_F(ListenerTest, CallsMayBeNamed) {
  af::FlightCallOptions options = with_key();
  options.headers.emplace_back("x-request-id", "mine");
  ASSERT_TRUE(refusal("", batch_of({"a"}), options).ok());
  EXPECT_EQ(handler_->request_id(), "mine");
}

TEST(GrpcSettings, ABuilderThatLooksOtherwiseIsLeftAlone) {
  std::array<std::uint64_t, 32> other{};
  EXPECT_FALSE(flight::bound_grpc_server(other.data(), 1, {}));
  EXPECT_EQ(other, (std::array<std::uint64_t, 32>{}));
}

TEST(PeerSocket, AddressesAsGrpcWritesThem) {
  for (const char* text : {"ipv6:[::1]:40000", "ipv6:%5B::1%5D:40000"}) {
    EXPECT_EQ(flight::read_peer(text).address, "::1") << text;
    EXPECT_EQ(flight::read_peer(text).port, 40000) << text;
  }
  EXPECT_EQ(flight::read_peer("ipv4:127.0.0.1:40000").address, "127.0.0.1");
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
