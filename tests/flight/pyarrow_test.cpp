// pyarrow reads what this client wrote, and the other way round. The Python is that of .venv-flight.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/subprocess.h"
#include "flight/flight_fixture.h"

namespace quarrel::test {
namespace {

class Pyarrow : public LongbowTest {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(QUARREL_FLIGHT_PYTHON)) GTEST_SKIP() << "there is no " << QUARREL_FLIGHT_PYTHON;
    start();
  }

  // What the peer says, as JSON.
  nlohmann::json peer(const std::string& task) const {
    ProcessOptions options;
    options.timeout = std::chrono::minutes(2);
    options.output_limit = 1 << 20;
    const ProcessResult result = run_process({QUARREL_FLIGHT_PYTHON, QUARREL_FLIGHT_PEER, task, address_.host,
                                              std::to_string(address_.data_port), dataset()},
                                             options);
    EXPECT_EQ(result.exit_code, 0) << result.output;
    return nlohmann::json::parse(result.output, nullptr, false);
  }
};

TEST_F(Pyarrow, ReadsWhatWeWrote) {
  put_and_wait(40, 5);
  const nlohmann::json read = peer("read");
  ASSERT_EQ(read["rows"].size(), 5u);
  EXPECT_EQ(read["types"],
            (nlohmann::json{"int64", "fixed_size_list<item: float>[4]", "timestamp[ns]", "string", "string"}));
  for (const auto& row : read["rows"]) {
    const std::int64_t id = row["id"];
    EXPECT_EQ(row["vector"].get<std::vector<float>>(), values(id));
    EXPECT_EQ(row["timestamp"], 1'700'000'000'000'000'000 + id);
    EXPECT_EQ(row["text"], "text " + std::to_string(id));
    EXPECT_EQ(row["metadata"], "{\"n\":" + std::to_string(id) + "}");
  }
}

// In the columns of Longbow's own Python client.
TEST_F(Pyarrow, WritesWhatWeRead) {
  const nlohmann::json written = peer("write");
  expect_rows(3);
  int seen = 0;
  client_->scan(dataset(), {}, [&](const StoredRow& row) {
    ++seen;
    const nlohmann::json& expected = written[static_cast<std::size_t>(*row.id)];
    EXPECT_EQ(std::vector<float>(row.vector.begin(), row.vector.end()), expected["vector"].get<std::vector<float>>());
    EXPECT_EQ(row.timestamp, expected["timestamp"].get<std::int64_t>());
    EXPECT_EQ(row.columns.size(), 2u);
    EXPECT_EQ(row.columns[0].name, "metadata");
    EXPECT_EQ(row.columns[0].value, expected["metadata"].get<std::string>());
    EXPECT_EQ(row.columns[1].name, "year");
    EXPECT_EQ(row.columns[1].null, expected["year"].is_null());
    EXPECT_EQ(row.columns[1].value, row.columns[1].null ? "" : expected["year"].dump());
    return true;
  });
  EXPECT_EQ(seen, 3);
  const std::vector<float> query = written[1]["vector"];
  EXPECT_EQ(client_->search(dataset(), {.vector = query, .k = 1}).at(0).id, 1u);
}

}  // namespace
}  // namespace quarrel::test
