// A store and a client of it. The store is the test server in this process, or, where QUARREL_LONGBOW names one
// (host:port of its data port; the meta port is the next one), a real one: tests that need more than Longbow itself
// offers are skipped there.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/environment.h"
#include "flight/arrow/longbow_client.h"
#include "support/longbow_server.h"

namespace quarrel::test {

inline constexpr std::chrono::milliseconds kPatience = std::chrono::minutes(2);

class LongbowTest : public testing::Test {
 protected:
  void start(const longbow::ServerOptions& options = {}) {
    if (const auto real = environment("QUARREL_LONGBOW")) {
      address_ = read_longbow_address("longbow://" + *real, DatasetPart::optional);
      address_.meta_port = static_cast<std::uint16_t>(address_.data_port + 1);
    } else {
      server_ = std::make_unique<longbow::Server>(options);
      address_.host = options.host;
      address_.data_port = static_cast<std::uint16_t>(server_->data_port());
      address_.meta_port = static_cast<std::uint16_t>(server_->meta_port());
      address_.tls = !options.certificate.empty();
    }
    client_ = connect();
  }

  void SetUp() override { start(); }
  void TearDown() override {
    client_.reset();
    server_.reset();
  }

  // With pauses so short that no test waits.
  std::unique_ptr<LongbowClient> connect(LongbowOptions options = {}) const {
    options.first_pause = std::chrono::milliseconds(1);
    return std::make_unique<flight::ArrowLongbowClient>(address_, options);
  }

  // Of this test and this run alone: a real store keeps what it has.
  std::string dataset() const {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    return std::string(test->test_suite_name()) + "/" + test->name() + "-" + std::to_string(getpid());
  }

  static DatasetSchema schema(std::int32_t dimension = 4) { return {.dimension = dimension, .columns = {"metadata"}}; }

  // Row i: its id is `first + i`, its vector has i, i + 1, …
  std::unique_ptr<VectorBatch> batch(std::int64_t first, std::size_t rows, std::int32_t dimension = 4) const {
    auto result = client_->new_batch(schema(dimension), rows);
    for (std::size_t i = 0; i < rows; ++i) {
      const std::int64_t id = first + static_cast<std::int64_t>(i);
      const std::string text = "text " + std::to_string(id);
      const std::string metadata = "{\"n\":" + std::to_string(id) + "}";
      const std::vector<std::string_view> columns = {metadata};
      const std::size_t row =
          result->add({.id = id, .timestamp = 1'700'000'000'000'000'000 + id, .text = text, .columns = columns});
      std::ranges::copy(values(id, dimension), result->vector(row).begin());
    }
    return result;
  }

  static std::vector<float> values(std::int64_t id, std::int32_t dimension = 4) {
    std::vector<float> result;
    for (std::int32_t i = 0; i < dimension; ++i)
      result.push_back(static_cast<float>(id) + 0.25f * static_cast<float>(i));
    return result;
  }

  StreamResult put(std::int64_t first, std::size_t rows) {
    const auto stream = client_->put(dataset(), schema());
    stream->append(*batch(first, rows));
    return stream->close();
  }

  // Until the rows are there.
  void put_and_wait(std::int64_t first, std::size_t rows) {
    put(first, rows);
    expect_rows(static_cast<std::int64_t>(rows));
  }

  void expect_rows(std::int64_t rows) {
    const Readiness state = client_->wait_until_ready(dataset(), rows, kPatience);
    ASSERT_EQ(state.state, ReadyState::ready) << state.reason;
    ASSERT_EQ(state.indexed, rows);
  }

  // How often each id is there.
  std::map<std::int64_t, int> ids(const std::vector<RowFilter>& filters = {}) {
    std::map<std::int64_t, int> found;
    client_->scan(dataset(), filters, [&](const StoredRow& row) {
      ++found[row.id.value_or(-1)];
      return true;
    });
    return found;
  }

  std::unique_ptr<longbow::Server> server_;  // null: a real store
  LongbowAddress address_ = {.host = "127.0.0.1"};
  std::unique_ptr<LongbowClient> client_;
};

// For what only the test server does.
class FaultyLongbowTest : public LongbowTest {
 protected:
  void SetUp() override {
    if (environment("QUARREL_LONGBOW")) GTEST_SKIP() << "a real store has no faults on demand";
    start();
  }
};

// The error that `call` throws, and nothing else.
template <typename Call>
std::optional<LongbowError> longbow_error(const Call& call) {
  try {
    call();
  } catch (const LongbowError& error) {
    return error;
  } catch (const std::exception& error) {
    ADD_FAILURE() << "another error: " << error.what();
    return std::nullopt;
  }
  ADD_FAILURE() << "no error";
  return std::nullopt;
}

template <typename Call>
std::string bad_input(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::bad_input) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

inline bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace quarrel::test
