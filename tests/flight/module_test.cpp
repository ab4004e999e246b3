// The module as the program opens it, and the whole way of a text: embedded, stored, described and read back.
#include "flight/module.h"

#include <gtest/gtest.h>

#include <array>
#include <chrono>

#include "base/loadable_module.h"
#include "flight/flight_fixture.h"
#include "flight/flight_module.h"
#include "session/embedding.h"
#include "session/session_support.h"

namespace quarrel::test {
namespace {

class Module : public LongbowTest {};

TEST_F(Module, IsBesideTheProgram) {
  ASSERT_TRUE(has_flight_module());
  const auto opened = connect_longbow(address_);
  EXPECT_EQ(opened->address(), address_);
  EXPECT_EQ(opened->readiness(dataset()).state, ReadyState::missing);
}

// What the module throws is caught by the program as what it is.
TEST_F(Module, ItsErrorsAreOurs) {
  const auto opened = connect_longbow(address_);
  const auto error = longbow_error([&] { opened->info("nothing"); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->kind(), ErrorKind::not_found);
  EXPECT_THROW(opened->new_batch({.dimension = 0}, 1), Error);
}

TEST_F(Module, OneOfAnotherBuildIsRefused) {
  // As the loader would ask for it, with another number.
  EXPECT_NE(kFlightModuleVersion, 0);
  const LoadableModule module = {.file = "libquarrel_flight.so", .part = "Flight client", .remedy = ""};
  const auto connect = reinterpret_cast<ConnectLongbow>(module_function(module, kConnectLongbow));
  std::array<char, 200> reason{};
  const LongbowOptions options;
  EXPECT_EQ(connect(kFlightModuleVersion + 1, &address_, &options, reason.data(), reason.size()), nullptr);
  EXPECT_TRUE(has(reason.data(), "another build"));
}

TEST(MissingModule, IsToldWithWhatToDo) {
  const LoadableModule missing = {.file = "libquarrel_nothing.so", .part = "Nothing", .remedy = "run `make nothing`"};
  EXPECT_FALSE(has_module(missing));
  try {
    module_function(missing, "any");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::unsupported);
    EXPECT_TRUE(has(error.what(), "no Nothing") && has(error.what(), "run `make nothing`")) << error.what();
  }
}

TEST_F(Module, AModelsVectorsGoThereAndBack) {
  TempDir folder;
  const auto model = load_toy(write_toy_embed(folder.path()));
  const std::string text = "Hello World";
  const Embedding embedding = embed(model, std::vector<std::string>{text}).at(0);
  const auto dimension = static_cast<std::int32_t>(embedding.values.size());
  ASSERT_EQ(dimension, vector_width(*model, {}));

  const auto store = connect_longbow(address_);
  const DatasetSchema columns = {
      .dimension = dimension, .columns = {"metadata"}, .properties = {{"quarrel.model", "toy"}}};
  const auto sent = store->new_batch(columns, 1);
  const std::string metadata = R"({"model":"toy","version":"1.5"})";
  const std::vector<std::string_view> further = {metadata};
  const std::int64_t now = std::chrono::system_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
  sent->set_vector(sent->add({.id = 42, .timestamp = now, .text = text, .columns = further}), embedding.values);
  const auto stream = store->put(dataset(), columns);
  stream->append(*sent);
  stream->close();
  ASSERT_EQ(store->wait_until_ready(dataset(), 1, kPatience).indexed, 1);

  const DatasetInfo info = store->info(dataset());
  EXPECT_EQ(info.batches, 1);
  EXPECT_GE(info.bytes, static_cast<std::int64_t>(embedding.values.size() * sizeof(float)));

  const std::uint64_t rows = store->scan(dataset(), {{"id", Comparison::equal, "42"}}, [&](const StoredRow& row) {
    EXPECT_EQ(row.id, 42);
    EXPECT_EQ(row.timestamp, now);
    EXPECT_EQ(row.text, text);
    EXPECT_EQ(row.columns.size(), 1u);
    EXPECT_EQ(row.columns[0].value, metadata);
    EXPECT_EQ(std::vector<float>(row.vector.begin(), row.vector.end()), embedding.values);
    return true;
  });
  EXPECT_EQ(rows, 1u);
  const auto hits = store->search(dataset(), {.vector = embedding.values, .k = 5});
  ASSERT_EQ(hits.size(), 1u);
  EXPECT_EQ(hits[0].id, 42u);
}

}  // namespace
}  // namespace quarrel::test
