#include "flight/arrow/vector_streams.h"

#include <optional>
#include <utility>

#include "base/printable.h"
#include "flight/arrow/data_stream.h"
#include "flight/arrow/vector_batch.h"
#include "flight/tickets.h"

namespace quarrel::flight {
namespace {

// Notices that are kept; a server has no reason to send more.
constexpr std::size_t kMostNotices = 16;
// Batches on their way before the sender waits for the first one's acknowledgement.
constexpr std::uint64_t kMostUnacknowledged = 8;

// What both have in common: the first batch opens the call, all have one schema, a failure is the end.
class BatchStream : public VectorStream {
 public:
  BatchStream(std::shared_ptr<ClientState> state, CallSite site, arrow::flight::FlightDescriptor descriptor,
              const DatasetSchema& schema, std::stop_token stop)
      : state_(std::move(state)),
        site_(std::move(site)),
        descriptor_(std::move(descriptor)),
        schema_(schema),
        columns_(arrow_schema(schema)),
        stop_(std::move(stop)) {}

  void append(VectorBatch& batch) override {
    auto* sent = dynamic_cast<ArrowBatch*>(&batch);
    if (sent == nullptr) fail(ErrorKind::internal, "a batch that no client of Longbow has made");
    check_batch(*sent);
    const arrow::ipc::IpcPayload& payload = sent->payload();
    if (over_) fail_call(site_, ErrorKind::internal, AfterFailure::give_up, "the stream is over");
    over_ = true;  // unless all goes well
    if (!stream_) open();
    stream_->write(payload);
    ++result_.batches;
    result_.rows += sent->rows();
    result_.bytes += static_cast<std::uint64_t>(payload.body_length);
    state_->counts.rows_sent += sent->rows();
    state_->counts.bytes_sent += static_cast<std::uint64_t>(payload.body_length);
    after_batch();
    over_ = false;
  }

  std::uint64_t acknowledged() const noexcept override { return acknowledged_; }

  StreamResult close() override {
    if (over_) fail_call(site_, ErrorKind::internal, AfterFailure::give_up, "the stream is over");
    over_ = true;
    if (!stream_) return result_;
    stream_->done_writing();
    read_to_end();
    stream_.reset();
    timed_.reset();
    state_->stream_pause.note(result_.slow_down);
    if (result_.slow_down) ++state_->counts.slow_downs;
    return result_;
  }

 protected:
  virtual DataStream::Open opener() const = 0;
  virtual void after_open() = 0;
  virtual void after_batch() = 0;
  virtual void read_to_end() = 0;

  void note(std::string_view answer) {
    if (asks_to_slow_down(answer)) {
      result_.slow_down = true;
    } else if (result_.notices.size() < kMostNotices) {
      result_.notices.push_back(printable(answer));
    }
  }

  std::shared_ptr<ClientState> state_;
  CallSite site_;
  arrow::flight::FlightDescriptor descriptor_;
  StreamResult result_;
  std::uint64_t acknowledged_ = 0;
  std::optional<TimedCall> timed_;  // whether it failed its caller knows
  std::optional<DataStream> stream_;

 private:
  void check_batch(const ArrowBatch& batch) const {
    if (batch.rows() == 0) fail(ErrorKind::bad_input, "no vectors provided");
    if (batch.schema().dimension != schema_.dimension) {
      fail(ErrorKind::bad_input, "the vectors of a batch have dimension {}, expected {}", batch.schema().dimension,
           schema_.dimension);
    }
    if (batch.schema() != schema_) fail(ErrorKind::bad_input, "a batch has other columns than its stream");
  }

  void open() {
    if (const auto pause = state_->stream_pause.length(); pause.count() > 0 && !pause_for(pause, stop_)) {
      fail_call(site_, ErrorKind::cancelled, AfterFailure::retry, "it was stopped");
    }
    timed_.emplace(state_->counts);
    stream_.emplace(site_, state_, state_->options.batch_timeout, stop_, opener());
    after_open();
    stream_->write_schema(*columns_, descriptor_);
  }

  DatasetSchema schema_;
  std::shared_ptr<arrow::Schema> columns_;
  std::stop_token stop_;
  bool over_ = false;
};

class PutStream final : public BatchStream {
 public:
  using BatchStream::BatchStream;

 private:
  DataStream::Open opener() const override {
    return [options = state_->call_options(kWatched)](auto& transport, auto* stream) {
      return transport.DoPut(options, stream);
    };
  }
  void after_open() override {}
  void after_batch() override {}
  void read_to_end() override {
    while (const auto answer = stream_->read_put_answer()) note(*answer);
    acknowledged_ = result_.batches;
  }
};

class IngestStream final : public BatchStream {
 public:
  using BatchStream::BatchStream;

 private:
  DataStream::Open opener() const override {
    return [options = state_->call_options(kWatched)](auto& transport, auto* stream) {
      return transport.DoExchange(options, stream);
    };
  }
  // The store decides by the first message alone what the exchange is.
  void after_open() override { stream_->write_descriptor(descriptor_); }
  void after_batch() override {
    while (result_.batches - acknowledged_ >= kMostUnacknowledged) {
      if (!read_answer()) fail_short();
    }
  }
  void read_to_end() override {
    while (read_answer()) {
    }
    if (acknowledged_ < result_.batches) fail_short();
  }

  bool read_answer() {
    arrow::flight::internal::FlightData data;
    if (!stream_->read(data)) return false;
    const std::string answer = data.app_metadata == nullptr ? "" : data.app_metadata->ToString();
    if (acknowledged_rows(answer)) {
      ++acknowledged_;
    } else if (!answer.empty()) {
      note(answer);
    }
    return true;
  }

  [[noreturn]] void fail_short() const {
    fail_call(
        site_, ErrorKind::io, AfterFailure::read_back,
        fmt::format("the store ended the stream with {} of {} batches acknowledged", acknowledged_, result_.batches));
  }
};

CallSite write_site(const ClientState& state, const char* verb, const std::string& dataset) {
  return {.verb = verb, .dataset = dataset, .host = state.data.host(), .effect = CallEffect::writes};
}

}  // namespace

std::unique_ptr<VectorStream> open_put(std::shared_ptr<ClientState> state, const std::string& dataset,
                                       const DatasetSchema& schema, std::stop_token stop) {
  CallSite site = write_site(*state, "DoPut", dataset);
  return std::make_unique<PutStream>(std::move(state), std::move(site),
                                     arrow::flight::FlightDescriptor::Path({dataset}), schema, std::move(stop));
}

std::unique_ptr<VectorStream> open_ingest(std::shared_ptr<ClientState> state, const std::string& dataset,
                                          const DatasetSchema& schema, std::stop_token stop) {
  CallSite site = write_site(*state, "DoExchange", dataset);
  return std::make_unique<IngestStream>(std::move(state), std::move(site),
                                        arrow::flight::FlightDescriptor::Path({"ingest", dataset}), schema,
                                        std::move(stop));
}

}  // namespace quarrel::flight
