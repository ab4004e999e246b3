// An Arrow program that calls our endpoint, with a key.
#pragma once

#include <arrow/api.h>
#include <arrow/flight/client.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace quarrel::test {

using FlightExchange = arrow::flight::FlightClient::DoExchangeResult;

inline std::unique_ptr<arrow::flight::FlightClient> connect_flight(std::uint16_t port,
                                                                   const std::string& host = "127.0.0.1") {
  return arrow::flight::FlightClient::Connect(arrow::flight::Location::ForGrpcTcp(host, port).ValueOrDie())
      .ValueOrDie();
}

inline arrow::flight::FlightCallOptions with_key(const std::string& key = "secret") {
  arrow::flight::FlightCallOptions options;
  options.headers = {{"authorization", "Bearer " + key}};
  return options;
}

inline std::shared_ptr<arrow::RecordBatch> batch_of(const std::vector<std::string>& texts) {
  arrow::StringBuilder builder;
  EXPECT_TRUE(builder.AppendValues(texts).ok());
  return arrow::RecordBatch::Make(arrow::schema({arrow::field("text", arrow::utf8())}),
                                  static_cast<std::int64_t>(texts.size()), {builder.Finish().ValueOrDie()});
}

inline arrow::Result<std::shared_ptr<arrow::RecordBatch>> answer(FlightExchange& exchange,
                                                                 const std::shared_ptr<arrow::RecordBatch>& batch) {
  // What is refused may be so before this is written; the reason comes with the reading.
  static_cast<void>(exchange.writer->WriteRecordBatch(*batch));
  ARROW_ASSIGN_OR_RAISE(const arrow::flight::FlightStreamChunk chunk, exchange.reader->Next());
  return chunk.data;
}

}  // namespace quarrel::test
