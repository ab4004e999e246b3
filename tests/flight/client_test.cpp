// What the client and the store do together when nothing goes wrong: the same tests run against a real Longbow.
#include <gtest/gtest.h>

#include <cmath>
#include <thread>

#include "flight/flight_fixture.h"

namespace quarrel::test {
namespace {

class Client : public LongbowTest {};

TEST_F(Client, ReadsBackWhatItPut) {
  const StreamResult result = put(100, 3);
  EXPECT_EQ(result.batches, 1u);
  EXPECT_EQ(result.rows, 3u);
  EXPECT_GT(result.bytes, 3u * 4 * sizeof(float));
  EXPECT_FALSE(result.slow_down);
  EXPECT_TRUE(result.notices.empty());
  expect_rows(3);
  std::map<std::int64_t, int> seen;
  const std::uint64_t rows = client_->scan(dataset(), {}, [&](const StoredRow& row) {
    const std::int64_t id = row.id.value();
    ++seen[id];
    EXPECT_EQ(row.id_text, std::to_string(id));
    EXPECT_EQ(std::vector<float>(row.vector.begin(), row.vector.end()), values(id));
    EXPECT_EQ(row.timestamp, 1'700'000'000'000'000'000 + id);
    EXPECT_EQ(row.text, "text " + std::to_string(id));
    EXPECT_EQ(row.columns.size(), 1u);
    EXPECT_EQ(row.columns[0].name, "metadata");
    EXPECT_EQ(row.columns[0].value, "{\"n\":" + std::to_string(id) + "}");
    return true;
  });
  EXPECT_EQ(rows, 3u);
  EXPECT_EQ(seen, (std::map<std::int64_t, int>{{100, 1}, {101, 1}, {102, 1}}));
}

TEST_F(Client, SendsManyBatchesOfOneStream) {
  const auto stream = client_->put(dataset(), schema());
  const auto reused = client_->new_batch(schema(), 10);
  for (std::int64_t first = 0; first < 200; first += 10) stream->append(*batch(first, 10));
  EXPECT_EQ(stream->acknowledged(), 0u);
  const StreamResult result = stream->close();
  EXPECT_EQ(result.batches, 20u);
  EXPECT_EQ(stream->acknowledged(), 20u);
  expect_rows(200);
  EXPECT_EQ(ids().size(), 200u);
}

TEST_F(Client, ABatchIsUsedAgain) {
  const auto again = client_->new_batch(schema(), 2);
  const auto stream = client_->put(dataset(), schema());
  for (std::int64_t id = 0; id < 5; ++id) {
    again->clear();
    const std::vector<std::string_view> columns = {"{}"};
    again->set_vector(again->add({.id = id, .columns = columns}), values(id));
    stream->append(*again);
  }
  stream->close();
  expect_rows(5);
  client_->scan(dataset(), {}, [&](const StoredRow& row) {
    EXPECT_EQ(std::vector<float>(row.vector.begin(), row.vector.end()), values(*row.id));
    return true;
  });
}

TEST_F(Client, ARepeatedIdIsASecondRow) {
  const auto once = batch(7, 1);
  for (int i = 0; i < 2; ++i) {
    const auto stream = client_->put(dataset(), schema());
    stream->append(*once);
    stream->close();
  }
  expect_rows(2);
  EXPECT_EQ(ids(), (std::map<std::int64_t, int>{{7, 2}}));
}

TEST_F(Client, IngestAcknowledgesEachBatch) {
  const auto stream = client_->ingest(dataset(), schema());
  for (std::int64_t first = 0; first < 30; ++first) stream->append(*batch(first, 1));
  // Only so many are on their way unanswered.
  EXPECT_GE(stream->acknowledged(), 22u);
  const StreamResult result = stream->close();
  EXPECT_EQ(result.batches, 30u);
  EXPECT_EQ(stream->acknowledged(), 30u);
  expect_rows(30);
  EXPECT_EQ(ids().size(), 30u);
}

TEST_F(Client, FiltersAreApplied) {
  put_and_wait(0, 10);
  EXPECT_EQ(ids({{"id", Comparison::equal, "4"}}), (std::map<std::int64_t, int>{{4, 1}}));
  EXPECT_EQ(ids({{"id", Comparison::greater_or_equal, "3"}, {"id", Comparison::less, "5"}}),
            (std::map<std::int64_t, int>{{3, 1}, {4, 1}}));
  EXPECT_EQ(ids({{"text", Comparison::equal, "text 9"}}), (std::map<std::int64_t, int>{{9, 1}}));
  EXPECT_EQ(ids({{"text", Comparison::not_equal, "text 9"}}).size(), 9u);
}

// The store would end such a scan well, with rows missing.
TEST_F(Client, FiltersThatDoNotFitAreRefused) {
  put_and_wait(0, 2);
  EXPECT_TRUE(has(bad_input([&] { ids({{"colour", Comparison::equal, "red"}}); }), "no column 'colour'"));
  EXPECT_TRUE(has(bad_input([&] { ids({{"id", Comparison::equal, "four"}}); }), "holds numbers"));
  EXPECT_TRUE(has(bad_input([&] { ids({{"vector", Comparison::equal, "1"}}); }), "cannot be filtered"));
  EXPECT_TRUE(has(bad_input([&] { ids({{"timestamp", Comparison::equal, "1"}}); }), "cannot be filtered"));
}

TEST_F(Client, AVisitorEndsTheScan) {
  put_and_wait(0, 10);
  int seen = 0;
  client_->scan(dataset(), {}, [&](const StoredRow&) { return ++seen < 3; });
  EXPECT_EQ(seen, 3);
  EXPECT_EQ(ids().size(), 10u);
}

TEST_F(Client, SearchesOnEveryPath) {
  put_and_wait(0, 20);
  const std::vector<float> query = values(7);
  for (const SearchPath path : {SearchPath::automatic, SearchPath::exchange, SearchPath::ticket, SearchPath::action}) {
    const auto hits = client_->search(dataset(), {.vector = query, .k = 3}, path);
    ASSERT_EQ(hits.size(), 3u);
    EXPECT_EQ(hits[0].id, 7u);
    EXPECT_FLOAT_EQ(hits[0].score, 1.0f);
    EXPECT_TRUE(hits[1].id == 6 || hits[1].id == 8);
    // Neighbours differ by 1 in each of four values.
    EXPECT_NEAR(hits[1].score, 1.0 / (1.0 + 2.0), 1e-6);
  }
}

TEST_F(Client, SearchesAmongFilteredRows) {
  put_and_wait(0, 20);
  const std::vector<float> query = values(7);
  const auto hits =
      client_->search(dataset(), {.vector = query, .k = 2, .filters = {{"id", Comparison::greater, "10"}}});
  ASSERT_EQ(hits.size(), 2u);
  EXPECT_EQ(hits[0].id, 11u);
  EXPECT_EQ(hits[1].id, 12u);
}

TEST_F(Client, SearchesThatCannotBeAreRefused) {
  put_and_wait(0, 2);
  const std::vector<float> query = values(0);
  const std::vector<float> no_number = {0.0f, std::nanf(""), 0.0f, 0.0f};
  EXPECT_TRUE(has(bad_input([&] { client_->search(dataset(), {}); }), "no vectors provided"));
  EXPECT_TRUE(has(bad_input([&] { client_->search(dataset(), {.vector = query, .k = 0}); }), "at least one"));
  EXPECT_TRUE(has(bad_input([&] { client_->search(dataset(), {.vector = no_number}); }), "finite number"));
  const SearchRequest both = {.vector = query, .filters = {{"id", Comparison::equal, "1"}}, .text_query = "a"};
  EXPECT_TRUE(has(bad_input([&] { client_->search(dataset(), both); }), "no filters"));
  const std::vector<float> longer = values(0, 5);
  for (const SearchPath path : {SearchPath::ticket, SearchPath::action}) {
    const std::string message = bad_input([&] { client_->search(dataset(), {.vector = longer}, path); });
    EXPECT_TRUE(has(message, "dimension mismatch")) << message;
  }
}

TEST_F(Client, TextsCountWhereTheyAreAskedFor) {
  put_and_wait(0, 5);
  const std::vector<float> query = values(0);
  const auto hits = client_->search(dataset(), {.vector = query, .k = 1, .text_query = "text 4", .alpha = 0});
  ASSERT_EQ(hits.size(), 1u);
  EXPECT_EQ(hits[0].id, 4u);
}

TEST_F(Client, TellsWhatTheStoreKnowsOfADataset) {
  put_and_wait(0, 5);
  const DatasetInfo info = client_->info(dataset());
  EXPECT_EQ(info.name, dataset());
  EXPECT_EQ(info.batches, 1);
  EXPECT_GT(info.bytes, 0);
  const auto names = client_->datasets();
  EXPECT_NE(std::ranges::find(names, dataset()), names.end());
  EXPECT_EQ(client_->datasets(dataset()), std::vector<std::string>{dataset()});
  EXPECT_EQ(client_->datasets("nobody has this name"), std::vector<std::string>{});
  EXPECT_TRUE(has(client_->statistics(dataset()), "edge_count"));
}

TEST_F(Client, LearnsTheColumnsFromAScan) {
  put_and_wait(0, 1);
  const auto columns = client_->schema(dataset());
  ASSERT_TRUE(columns);
  EXPECT_EQ(columns->dimension, 4);
  EXPECT_EQ(columns->id_type, IdType::int64);
  EXPECT_EQ(columns->vector_type, VectorType::float32);
  ASSERT_EQ(columns->columns.size(), 5u);
  EXPECT_EQ(columns->columns[0].name, "id");
  EXPECT_EQ(columns->columns[0].type, "int64");
  EXPECT_EQ(columns->columns[4].name, "metadata");
  EXPECT_EQ(columns->columns[4].type, "string");
}

TEST_F(Client, RowsAreRemovedFromScans) {
  put_and_wait(0, 3);
  client_->remove(dataset(), "1");
  EXPECT_EQ(ids(), (std::map<std::int64_t, int>{{0, 1}, {2, 1}}));
  const auto error = longbow_error([&] { client_->remove(dataset(), "77"); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->kind(), ErrorKind::not_found);
}

TEST_F(Client, ADatasetIsRemoved) {
  put_and_wait(0, 3);
  client_->remove_dataset(dataset());
  EXPECT_EQ(client_->readiness(dataset()).state, ReadyState::missing);
  const auto error = longbow_error([&] { ids(); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->kind(), ErrorKind::not_found);
}

TEST_F(Client, AnErrorNamesVerbDatasetAndHost) {
  const auto scan = longbow_error([&] { client_->scan("no such/dataset", {}, [](const StoredRow&) { return true; }); });
  ASSERT_TRUE(scan);
  EXPECT_EQ(scan->kind(), ErrorKind::not_found);
  EXPECT_EQ(scan->after_failure(), AfterFailure::give_up);
  const std::string message = scan->what();
  EXPECT_TRUE(has(message, "DoGet of 'no such/dataset' at " + host_and_port(address_.host, address_.data_port)))
      << message;
  const auto info = longbow_error([&] { client_->info("no such/dataset"); });
  ASSERT_TRUE(info);
  EXPECT_EQ(info->kind(), ErrorKind::not_found);
  EXPECT_TRUE(has(info->what(), "GetFlightInfo")) << info->what();
  EXPECT_TRUE(has(info->what(), host_and_port(address_.host, address_.meta_port))) << info->what();
  EXPECT_EQ(client_->readiness("no such/dataset").state, ReadyState::missing);
}

TEST_F(Client, ADatasetKeepsItsDimension) {
  put_and_wait(0, 1);
  const auto stream = client_->put(dataset(), schema(8));
  const auto error = longbow_error([&] {
    stream->append(*batch(1, 1, 8));
    stream->close();
  });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->kind(), ErrorKind::bad_input);
  EXPECT_EQ(error->after_failure(), AfterFailure::give_up);
  EXPECT_TRUE(has(error->what(), "schema mismatch")) << error->what();
  EXPECT_EQ(ids().size(), 1u);
}

TEST_F(Client, VectorsOfHalfPrecisionAreRounded) {
  DatasetSchema half = schema();
  half.vector_type = VectorType::float16;
  const auto sent = client_->new_batch(half, 1);
  const std::vector<std::string_view> columns = {"{}"};
  const std::vector<float> exact = {0.5f, -2.0f, 0.1f, 65504.0f};
  sent->set_vector(sent->add({.id = 1, .columns = columns}), exact);
  const auto stream = client_->put(dataset(), half);
  stream->append(*sent);
  stream->close();
  expect_rows(1);
  client_->scan(dataset(), {}, [&](const StoredRow& row) {
    EXPECT_EQ(row.vector[0], 0.5f);
    EXPECT_EQ(row.vector[1], -2.0f);
    EXPECT_EQ(row.vector[2], 0.0999755859375f);
    EXPECT_EQ(row.vector[3], 65504.0f);
    return true;
  });
  EXPECT_EQ(client_->schema(dataset())->vector_type, VectorType::float16);
}

TEST_F(Client, IdsMayBeTexts) {
  const DatasetSchema named = {.dimension = 2, .id_type = IdType::utf8, .timestamp = false, .text = false};
  const auto sent = client_->new_batch(named, 2);
  for (const std::string id : {"first", "second"}) {
    sent->set_vector(sent->add({.id_text = id}), std::vector<float>{1.0f, 2.0f});
  }
  const auto stream = client_->put(dataset(), named);
  stream->append(*sent);
  stream->close();
  expect_rows(2);
  std::vector<std::string> seen;
  client_->scan(dataset(), {}, [&](const StoredRow& row) {
    EXPECT_FALSE(row.id);
    seen.emplace_back(row.id_text);
    return true;
  });
  std::ranges::sort(seen);
  EXPECT_EQ(seen, (std::vector<std::string>{"first", "second"}));
}

TEST_F(Client, ManyThreadsShareIt) {
  put_and_wait(0, 50);
  std::vector<std::jthread> threads;
  std::atomic<int> right = 0;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      for (int n = 0; n < 5; ++n) {
        const std::vector<float> query = values(i);
        if (client_->search(dataset(), {.vector = query, .k = 1}).at(0).id == static_cast<std::uint64_t>(i)) ++right;
        if (ids().size() == 50) ++right;
      }
    });
  }
  threads.clear();
  EXPECT_EQ(right, 80);
  EXPECT_LE(dynamic_cast<flight::ArrowLongbowClient&>(*client_).data_connections(), 4u);
}

TEST_F(Client, CountsItsWork) {
  put_and_wait(0, 5);
  ids();
  const LongbowCounters counters = client_->counters();
  EXPECT_EQ(counters.rows_sent, 5u);
  EXPECT_GT(counters.bytes_sent, 5u * 16);
  EXPECT_EQ(counters.rows_received, 5u);
  EXPECT_GT(counters.bytes_received, 5u * 16);
  EXPECT_GE(counters.calls, 3u);
  EXPECT_EQ(counters.failures, 0u);
  EXPECT_EQ(counters.retries, 0u);
}

}  // namespace
}  // namespace quarrel::test
