// An ingestion into a store over the network, with the threads that it has in a server: texts are read, embedded, sent
// and counted at the same time.
#include <gtest/gtest.h>

#include <map>
#include <thread>

#include "flight/flight_fixture.h"
#include "ingest/dataset_check.h"
#include "ingest/ingest_support.h"
#include "support/temp_dir.h"

namespace quarrel::test {
namespace {

constexpr std::int32_t kStoredWidth = 4;  // of the fixture's own rows

class IngestOverFlight : public FaultyLongbowTest {
 protected:
  static JournalSubject subject(std::int32_t dimension) {
    return {.dataset = "d", .model = "m", .dimension = dimension};
  }
  void begin(Journal& journal) {
    begin_dataset(DatasetWait(*client_, dataset(), send_, {}), journal, kStoredWidth, UnknownRows::added_to, "");
  }

  TempDir folder_;
  const std::filesystem::path path_ = folder_ / "journal";
  const SendOptions send_{.first_pause = std::chrono::milliseconds(1), .settling = {}};
};

// Vectors come from threads of their own, rows show late, and the first stream is refused.
TEST_F(IngestOverFlight, EveryTextIsThereOnce) {
  server_->store().set_visible_after(std::chrono::milliseconds(5));
  server_->set_faults({.rate_limited = 1});
  ListSource source;
  source.texts = many_texts(400);
  FakeEmbedder embedder;
  embedder.at_once = false;
  Journal journal(path_, subject(kFakeWidth));
  journal.begin({});
  const IngestOptions options{.batch_rows = 16, .send = send_};
  const IngestCalls calls{.note = [](const std::string&) {}};
  const IngestReport report =
      ingest(source, embedder, *client_, dataset(), ingest_schema(kFakeWidth, {}, "m"), journal, options, calls);
  EXPECT_EQ(report.progress.sent, 400u);
  EXPECT_EQ(report.store.missing, 0u);
  std::map<std::string, int> found;
  client_->scan(dataset(), {}, [&](const StoredRow& row) {
    const std::string text(row.text);
    ++found[text];
    EXPECT_EQ(std::vector<float>(row.vector.begin(), row.vector.end()), vector_of(text));
    return true;
  });
  EXPECT_EQ(found.size(), 400u);
  for (const auto& [text, times] : found) EXPECT_EQ(times, 1) << text;
  EXPECT_EQ(client_->counters().retries, 1u) << "of the batch that was refused";
  EXPECT_EQ(client_->counters().failures, 0u) << "it was stored in the end";
}

// What another program has sent is not there yet when the journal is begun.
TEST_F(IngestOverFlight, ADatasetThatIsStillBeingFilledIsWaitedFor) {
  server_->store().set_visible_after(std::nullopt);
  put(100, 3);
  const std::int64_t before = server_->calls();
  const std::jthread filler([&](const std::stop_token& stop) {
    // Whether it is there, its columns (two calls), and then again and again whether it is ready.
    while (server_->calls() < before + 5 && !stop.stop_requested()) std::this_thread::yield();
    server_->store().show_all();
  });
  Journal journal(path_, subject(kStoredWidth));
  begin(journal);
  EXPECT_EQ(journal.before().first_id, 103u);
  EXPECT_EQ(journal.before().rows, 3u);
}

// They are those of a scan, and a server comes there with every request.
TEST_F(IngestOverFlight, ADatasetIsAskedForItsColumnsOnce) {
  put_and_wait(0, 1);
  Journal journal(path_, subject(kStoredWidth));
  journal.begin({.first_id = 1, .rows = 1});
  begin(journal);
  const std::int64_t before = server_->calls();
  begin(journal);
  EXPECT_EQ(server_->calls(), before + 1) << "whether it is there";
}

}  // namespace
}  // namespace quarrel::test
