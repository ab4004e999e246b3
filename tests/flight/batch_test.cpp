// What goes into a batch, where it lies, and what is refused.
#include <arrow/util/key_value_metadata.h>
#include <gtest/gtest.h>

#include <array>

#include "flight/arrow/vector_batch.h"
#include "flight/flight_fixture.h"

namespace quarrel::test {
namespace {

constexpr std::size_t kLargest = std::size_t{1} << 20;

// One copy, from the step into this memory: what is handed to the network is the same memory.
TEST(Batch, TheNetworkReadsWhereTheCallerWrote) {
  flight::ArrowBatch batch({.dimension = 3, .text = false}, 4, kLargest);
  batch.add({.id = 1});
  batch.add({.id = 2});
  const float* first = batch.vector(0).data();
  const float* second = batch.vector(1).data();
  EXPECT_EQ(second, first + 3);
  batch.add({.id = 3});
  EXPECT_EQ(batch.vector(0).data(), first);
  const auto& payload = batch.payload();
  int found = 0;
  for (const auto& buffer : payload.body_buffers) {
    if (buffer == nullptr || reinterpret_cast<const float*>(buffer->data()) != first) continue;
    ++found;
    // Of four rows that fit, the three that are there.
    EXPECT_EQ(buffer->size(), 3 * 3 * static_cast<std::int64_t>(sizeof(float)));
  }
  EXPECT_EQ(found, 1);
  EXPECT_EQ(&batch.payload(), &payload);
}

TEST(Batch, MemoryThatTheNetworkHoldsIsLeftToIt) {
  flight::ArrowBatch batch({.dimension = 2}, 1, kLargest);
  batch.set_vector(batch.add({.id = 1}), std::array{1.0f, 2.0f});
  const float* place = batch.vector(0).data();
  const arrow::ipc::IpcPayload held = batch.payload();
  batch.clear();
  batch.set_vector(batch.add({.id = 2}), std::array{3.0f, 4.0f});
  EXPECT_NE(batch.vector(0).data(), place);
  EXPECT_EQ(place[0], 1.0f);
}

TEST(Batch, MemoryThatNobodyHoldsIsUsedAgain) {
  flight::ArrowBatch batch({.dimension = 2}, 1, kLargest);
  batch.set_vector(batch.add({.id = 1}), std::array{1.0f, 2.0f});
  const float* place = batch.vector(0).data();
  batch.payload();
  batch.clear();
  EXPECT_EQ(batch.rows(), 0u);
  batch.add({.id = 2});
  EXPECT_EQ(batch.vector(0).data(), place);
}

TEST(Batch, NoVectorsAndNoDimensionAreRefused) {
  EXPECT_TRUE(has(bad_input([] { flight::ArrowBatch({.dimension = 0}, 1, kLargest); }), "zero dimension"));
  EXPECT_TRUE(has(bad_input([] { flight::ArrowBatch({.dimension = -1}, 1, kLargest); }), "zero dimension"));
  EXPECT_TRUE(has(bad_input([] { flight::ArrowBatch({.dimension = 2}, 0, kLargest); }), "no vectors provided"));
  flight::ArrowBatch batch({.dimension = 2}, 1, kLargest);
  EXPECT_TRUE(has(bad_input([&] { batch.payload(); }), "no vectors provided"));
  batch.add({.id = 1});
  EXPECT_TRUE(has(bad_input([&] { batch.set_vector(0, {}); }), "zero dimension"));
}

TEST(Batch, VectorsOfAnotherDimensionAreRefused) {
  flight::ArrowBatch batch({.dimension = 2}, 2, kLargest);
  batch.set_vector(batch.add({.id = 1}), std::array{1.0f, 2.0f});
  const std::size_t row = batch.add({.id = 2});
  EXPECT_TRUE(has(bad_input([&] { batch.set_vector(row, std::array{1.0f, 2.0f, 3.0f}); }),
                  "vector 1 has dimension 3, expected 2"));
}

TEST(Batch, RowsThatDoNotFitAreRefused) {
  flight::ArrowBatch batch({.dimension = 2, .columns = {"metadata"}}, 2, 4096);
  const std::array<std::string_view, 1> one = {"{}"};
  EXPECT_TRUE(has(bad_input([&] { batch.add({.id = -1, .columns = one}); }), "the id -1"));
  EXPECT_TRUE(has(bad_input([&] { batch.add({.id = kLargestVectorId + 1, .columns = one}); }), "4294967296"));
  EXPECT_TRUE(has(bad_input([&] { batch.add({.id = 1}); }), "further columns"));
  EXPECT_TRUE(has(bad_input([&] { batch.add({.id = 1, .text = "\xFF", .columns = one}); }), "not UTF-8"));
  const std::string much(5000, 'a');
  EXPECT_TRUE(has(bad_input([&] { batch.add({.id = 1, .text = much, .columns = one}); }), "more than 4096 bytes"));
  EXPECT_EQ(batch.rows(), 0u);
  batch.add({.id = 0, .columns = one});
  batch.add({.id = kLargestVectorId, .columns = one});
  EXPECT_TRUE(has(bad_input([&] { batch.add({.id = 1, .columns = one}); }), "full"));
  EXPECT_TRUE(has(bad_input([] { flight::ArrowBatch({.dimension = 1000}, 100, 4096); }), "more than 4096 bytes"));
}

TEST(Batch, ColumnsHaveNamesOfTheirOwn) {
  for (const std::string name : {"", "id", "vector", "timestamp", "text"}) {
    EXPECT_TRUE(has(bad_input([&] { flight::arrow_schema({.dimension = 1, .columns = {name}}); }), "further column"));
  }
  EXPECT_TRUE(has(bad_input([] { flight::arrow_schema({.dimension = 1, .columns = {"a", "a"}}); }), "further column"));
}

TEST(Batch, TheColumnsAreThoseThatTheStoreReads) {
  const auto columns =
      flight::arrow_schema({.dimension = 384, .columns = {"doc_id"}, .properties = {{"quarrel.model", "m"}}});
  EXPECT_EQ(columns->ToString(false),
            "id: int64 not null\nvector: fixed_size_list<item: float>[384] not null\ntimestamp: timestamp[ns]\n"
            "text: string\ndoc_id: string");
  EXPECT_EQ(columns->metadata()->Get("longbow.metric").ValueOrDie(), "cosine");
  EXPECT_EQ(columns->metadata()->Get("quarrel.model").ValueOrDie(), "m");
}

class BatchStream : public LongbowTest {};

TEST_F(BatchStream, TakesBatchesOfItsOwnColumnsAlone) {
  const auto stream = client_->put(dataset(), schema());
  const auto empty = client_->new_batch(schema(), 1);
  EXPECT_TRUE(has(bad_input([&] { stream->append(*empty); }), "no vectors provided"));
  const auto longer = batch(0, 1, 8);
  EXPECT_TRUE(has(bad_input([&] { stream->append(*longer); }), "dimension 8, expected 4"));
  const auto other = client_->new_batch({.dimension = 4}, 1);
  other->add({.id = 1});
  EXPECT_TRUE(has(bad_input([&] { stream->append(*other); }), "other columns"));
  EXPECT_THROW(client_->put(dataset(), {.dimension = 0}), Error);
  EXPECT_THROW(client_->put("", schema()), Error);
  EXPECT_THROW(client_->put("a\nb", schema()), Error);
  // None of that has ended the stream, or reached the store.
  stream->append(*batch(5, 1));
  stream->close();
  expect_rows(1);
  EXPECT_THROW(stream->append(*batch(6, 1)), Error);
}

TEST_F(BatchStream, WithoutABatchNothingIsSent) {
  const auto stream = client_->put(dataset(), schema());
  EXPECT_EQ(stream->close().batches, 0u);
  EXPECT_EQ(client_->readiness(dataset()).state, ReadyState::missing);
}

}  // namespace
}  // namespace quarrel::test
