// The whole way of texts into a store that fails at every call in every way, and a process that dies there: after
// another run every text is there exactly once.
#include "ingest/ingestion.h"

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <map>
#include <string>

#include "base/error.h"
#include "ingest/dataset_check.h"
#include "ingest/ingest_support.h"
#include "ingest/row_sender.h"
#include "support/fake_longbow.h"
#include "support/temp_dir.h"
#include "unit/gguf_support.h"

namespace quarrel::test {
namespace {

class Ingestion : public testing::Test {
 protected:
  static std::vector<std::string> many(std::size_t count) { return many_texts(count); }
  JournalSubject subject() const { return {.dataset = "d", .model = "m", .dimension = kFakeWidth}; }

  // As if nothing had ever been stored.
  void start_anew() {
    std::filesystem::remove(path_);
    store_.remove_dataset("texts");
    store_.calls = 0;
  }
  // What comes before a run with a dataset that may be another's.
  void begin(Journal& journal, UnknownRows unknown_rows = UnknownRows::refused, const std::stop_token& stop = {}) {
    begin_dataset(DatasetWait(store_, "texts", options_.send, calls_.note), journal, kFakeWidth, unknown_rows,
                  "the advice", stop);
  }
  IngestReport run(ListSource& source) {
    source.rewind();
    Journal journal(path_, subject());
    if (journal.is_new()) journal.begin({});
    return ingest(source, embedder_, store_, "texts", ingest_schema(kFakeWidth, {}, "m"), journal, options_, calls_);
  }
  IngestReport run(const std::vector<std::string>& texts) {
    ListSource source;
    source.texts = texts;
    return run(source);
  }
  // Every text once, with an id of its own and its vector.
  void expect_all(const std::vector<std::string>& texts, const std::string& when = {}) const {
    std::map<std::int64_t, int> ids;
    for (const FakeRow& row : store_.rows) {
      EXPECT_EQ(++ids[row.id], 1) << when << ": id " << row.id;
      EXPECT_EQ(row.vector, vector_of(row.text)) << when;
    }
    std::map<std::string, int> expected;
    for (const std::string& text : texts) expected[text] = 1;
    EXPECT_EQ(store_.texts(), expected) << when;
  }

  TempDir folder_;
  const std::filesystem::path path_ = folder_ / "journal";
  FakeLongbow store_;
  FakeEmbedder embedder_;
  IngestOptions options_{
      .batch_rows = 4,
      .batches = 3,
      .send = {.attempts = 3, .first_pause = {}, .patience = std::chrono::seconds(1), .settling = {}}};
  std::vector<std::string> notes_;
  IngestCalls calls_{.note = [this](const std::string& note) { notes_.push_back(note); }};
};

TEST_F(Ingestion, EveryTextIsStoredOnceOverRuns) {
  for (const bool at_once : {true, false}) {
    embedder_.at_once = at_once;
    const IngestReport first = run(many(10));
    EXPECT_EQ(first.progress.sent, at_once ? 10u : 0u);
    EXPECT_EQ(first.store.missing, 0u);
    expect_all(many(10));
  }
  const std::uint64_t embedded = embedder_.texts;
  const IngestReport more = run(many(13));
  EXPECT_EQ(more.progress.stored_before, 10u);
  EXPECT_EQ(more.progress.sent, 3u);
  EXPECT_EQ(more.progress.tokens, 6u);
  EXPECT_EQ(embedder_.texts, embedded + 3);
  expect_all(many(13));
  EXPECT_EQ(store_.scans, 0);  // counts were enough
}

TEST_F(Ingestion, ThreadsGiveTheSame) {
  embedder_.at_once = false;
  options_.batch_rows = 3;
  run(many(100));
  expect_all(many(100));
}

// The second batch is embedded only once the first is on its way, and the store holds its answer to that one until the
// second was embedded: one after the other, in either order, would wait for ever.
TEST_F(Ingestion, ABatchIsEmbeddedWhileAnotherIsOnItsWay) {
  constexpr std::chrono::seconds kForEver{60};
  std::promise<void> on_its_way, embedded;
  int started = 0, finished = 0, puts = 0;
  bool overlap = true;
  embedder_.on_start = [&] {
    if (++started == 2) overlap &= on_its_way.get_future().wait_for(kForEver) == std::future_status::ready;
  };
  embedder_.on_embedded = [&] {
    if (++finished == 2) embedded.set_value();
  };
  bool answered = true;  // of the thread that sends
  store_.on_put = [&] {
    if (++puts != 1) return;
    on_its_way.set_value();
    answered = embedded.get_future().wait_for(kForEver) == std::future_status::ready;
  };
  run(many(8));
  EXPECT_TRUE(overlap) << "nothing is sent before all is embedded";
  EXPECT_TRUE(answered) << "nothing is embedded while a batch is on its way";
  EXPECT_EQ(puts, 2);
  expect_all(many(8));
}

TEST_F(Ingestion, RepeatedTextsAreOne) {
  std::vector<std::string> twice = many(6);
  twice.insert(twice.end(), {"text 1", "text 5", "text 1"});
  const IngestReport report = run(twice);
  EXPECT_EQ(report.progress.repeated, 3u);
  expect_all(many(6));
}

TEST_F(Ingestion, RowsHaveTheirColumns) {
  run({"one"});
  ASSERT_EQ(store_.rows.size(), 1u);
  EXPECT_EQ(store_.rows[0].columns, (std::vector<std::string>{"", "list", "{}"}));
}

TEST(ColumnNames, AreNeitherEmptyNorTaken) {
  const auto refused = [](const std::vector<std::string>& names, const char* word) {
    expect_error(ErrorKind::usage, {"column", word}, [&] { check_column_names(names); });
  };
  refused({"year", ""}, "empty");
  refused({"year", "by", "year"}, "'year' is named twice");
  refused({"\xff"}, "UTF-8");
  for (const std::string& name : ingest_schema(kFakeWidth, {}, "m").columns) refused({name}, name.c_str());
  for (const std::string_view name : kStoreColumns) refused({std::string(name)}, "of its own");
  check_column_names(std::vector<std::string>{"year", "by", "Year"});
  check_column_names({});
}

TEST_F(Ingestion, FewBatchesExistAtATime) {
  run(many(200));
  EXPECT_LE(store_.most_batches, static_cast<int>(options_.batches) + 1);
  EXPECT_EQ(store_.batches_alive, 0);
  options_.batch_rows = 1000;
  options_.batch_bytes = 100;  // long texts make small batches
  const int before = store_.puts;
  run(many(240));
  EXPECT_GT(store_.puts, before + 5);
}

// The heart of it: each fault at each call, then a run without one.
TEST_F(Ingestion, AfterAnyFaultAnotherRunHasEveryTextOnce) {
  const std::vector<std::string> texts = many(11);
  run(texts);
  const int calls = store_.calls + 3;
  for (const Fault fault : kFaults) {
    for (const int in_a_row : {1, 2, 100}) {
      for (int at = 0; at < calls; ++at) {
        const std::string when = "fault " + std::to_string(static_cast<int>(fault)) + " at " + std::to_string(at) +
                                 ", " + std::to_string(in_a_row) + " in a row";
        start_anew();
        store_.fault = fault;
        store_.fault_at = at;
        store_.faults = in_a_row;
        try {
          run(texts);
        } catch (const Killed&) {
        } catch (const Error&) {
        }
        store_.fault = Fault::none;
        const IngestReport report = run(texts);
        EXPECT_EQ(report.store.missing, 0u) << when;
        expect_all(texts, when);
        if (HasFailure()) return;
      }
    }
  }
}

// And twice: what the second run does about the first may be interrupted too.
TEST_F(Ingestion, AfterTwoFaultsToo) {
  const std::vector<std::string> texts = many(9);
  const std::vector<Fault> first_faults{Fault::killed_midway, Fault::killed_after, Fault::drop_half};
  for (const Fault first : first_faults) {
    for (const Fault second : kFaults) {
      for (int first_at = 1; first_at < 3; ++first_at) {
        for (int second_at = 0; second_at < 6; ++second_at) {
          start_anew();
          const std::vector<std::pair<Fault, int>> runs{{first, first_at}, {second, second_at}, {Fault::none, 0}};
          for (const auto& [fault, at] : runs) {
            store_.calls = 0;
            store_.fault = fault;
            store_.fault_at = at;
            store_.faults = 1;
            try {
              run(texts);
            } catch (const Killed&) {
            } catch (const Error&) {
            }
          }
          expect_all(texts, std::to_string(static_cast<int>(first)) + "/" + std::to_string(static_cast<int>(second)) +
                                " at " + std::to_string(first_at) + ", " + std::to_string(second_at));
          if (HasFailure()) return;
        }
      }
    }
  }
}

// The process ends while a batch is on its way, and the journal's last bytes never reach the disk, however many.
TEST_F(Ingestion, AJournalTornAtAnyByteIsEnough) {
  const std::vector<std::string> texts = many(12);
  struct Moment {
    std::uintmax_t synced;
    std::vector<FakeRow> rows;
    bool exists;
  };
  std::vector<Moment> moments;
  store_.on_put = [&] { moments.push_back({std::filesystem::file_size(path_), store_.rows, store_.exists}); };
  run(texts);
  store_.on_put = nullptr;
  const std::string whole = read_file(path_);
  moments.push_back({whole.size(), store_.rows, store_.exists});
  ASSERT_EQ(moments.size(), 4u);
  for (std::size_t i = 0; i + 1 < moments.size(); ++i) {
    // The store has the batch or not; what follows the last sync is there or not.
    for (const std::size_t state : {i, i + 1}) {
      for (std::uintmax_t size = moments[i].synced; size < moments[i + 1].synced; ++size) {
        write_file(path_, whole.substr(0, size));
        store_.rows = moments[state].rows;
        store_.exists = moments[state].exists;
        run(texts);
        expect_all(texts, "moment " + std::to_string(i) + ", " + std::to_string(size) + " bytes");
        if (HasFailure()) return;
      }
    }
  }
}

// The answer to a batch is lost, and its rows show late. Sent again before that, they would be there twice.
TEST_F(Ingestion, ABatchWithoutAnAnswerIsLookedForOnceTheStoreShowsAllRows) {
  for (const bool is_busy : {true, false}) {
    for (const int at : {1, 2}) {
      start_anew();
      store_.late_is_busy = is_busy;
      store_.late_polls = is_busy ? 3 : 1;  // one that does not know of them says so once
      store_.fault = Fault::lose_answer;
      store_.fault_at = at;
      const int puts = store_.puts;
      run(many(8));
      const std::string when = (is_busy ? "busy, at " : "not known, at ") + std::to_string(at);
      expect_all(many(8), when);
      EXPECT_EQ(store_.puts, puts + 2) << when;
    }
  }
}

// There is no moment from which on a store cannot do so: what came of it is found later.
TEST_F(Ingestion, AStoreThatTakesInABatchAfterItWasSentAgainIsToldOf) {
  store_.late_is_busy = false;
  store_.late_polls = 7;  // longer than anybody waits
  store_.fault = Fault::killed_after;
  store_.fault_at = 1;
  EXPECT_THROW(run(many(3)), Killed);
  store_.fault = Fault::none;
  for (int i = 0; i < 4 && store_.rows.size() < 6; ++i) run(many(3));
  EXPECT_EQ(store_.rows.size(), 6u);
  const IngestReport report = run(many(3));
  EXPECT_EQ(report.store.repeated, 3u);
  EXPECT_EQ(report.store.missing, 0u);
}

// A run was killed, and the store still reads its last batch when the next one begins.
TEST_F(Ingestion, AStoreIsAskedTwiceForWhatAnotherRunSent) {
  for (const int at : {1, 2}) {
    start_anew();
    store_.late_is_busy = false;
    store_.late_polls = 1;
    store_.fault = Fault::killed_after;
    store_.fault_at = at;
    EXPECT_THROW(run(many(8)), Killed);
    store_.fault = Fault::none;
    run(many(8));
    expect_all(many(8), "at " + std::to_string(at));
  }
}

TEST_F(Ingestion, BatchesThatAreSentAgainAreCountedAndFailOnlyInTheEnd) {
  store_.fault = Fault::lose;
  store_.fault_at = 1;
  run(many(8));
  EXPECT_EQ(store_.counters().retries, 1u);
  EXPECT_EQ(store_.counters().failures, 0u);
  start_anew();
  store_.fault = Fault::lose_answer;  // found, and not sent again
  run(many(8));
  EXPECT_EQ(store_.counters().retries, 1u);
  EXPECT_EQ(store_.counters().failures, 0u);
  start_anew();
  store_.fault = Fault::refuse;
  store_.faults = 100;
  EXPECT_THROW(run(many(4)), LongbowError);
  EXPECT_EQ(store_.counters().retries, 3u) << "of three attempts two were another one";
  EXPECT_EQ(store_.counters().failures, 1u);
  start_anew();
  store_.fault = Fault::lose;  // and then nobody finds out what became of it
  EXPECT_THROW(run(many(4)), LongbowError);
  EXPECT_EQ(store_.counters().retries, 3u);
  EXPECT_EQ(store_.counters().failures, 2u);
}

TEST_F(Ingestion, ABatchThatIsStoppedBeforeItIsSentAgainIsNoRetry) {
  std::stop_source stop;
  const DatasetSchema schema = ingest_schema(kFakeWidth, {}, "m");
  Journal journal(path_, subject());
  journal.begin({});
  RowSender sender(store_, "texts", schema, journal, options_.send, [&](const std::string& note) {
    if (note.find("sent again") != std::string::npos) stop.request_stop();
  });
  const std::unique_ptr<VectorBatch> batch = store_.new_batch(schema, 1);
  const std::vector<std::uint32_t> ids{journal.claim(numbered_key(1)).id};
  store_.fault = Fault::refuse;
  expect_error(ErrorKind::cancelled, {}, [&] { sender.send(*batch, ids, stop.get_token()); });
  EXPECT_EQ(store_.puts, 1);
  EXPECT_EQ(store_.counters().retries, 0u);
  EXPECT_EQ(store_.counters().failures, 0u) << "nor is it a failure of the store's";
}

TEST_F(Ingestion, DroppedRowsAreSentAgainInTheSameRun) {
  store_.fault = Fault::drop_half;
  store_.fault_at = 1;
  store_.faults = 2;
  const IngestReport report = run(many(12));
  EXPECT_EQ(report.store.missing, 0u);
  EXPECT_EQ(report.progress.pass, 2);
  expect_all(many(12));
  // The second pass meets again what the first has counted.
  EXPECT_EQ(report.progress.texts, 12u);
  EXPECT_EQ(report.progress.sent, 12u);
  EXPECT_EQ(report.progress.stored_before, 0u);
  EXPECT_EQ(report.progress.repeated, 0u);
  ASSERT_FALSE(notes_.empty());
  EXPECT_NE(notes_.back().find("lost"), std::string::npos);
}

TEST_F(Ingestion, AStoreThatDropsForEverIsToldOf) {
  store_.fault = Fault::drop;
  store_.faults = 1000;
  const IngestReport report = run(many(8));
  EXPECT_EQ(report.progress.pass, options_.passes);
  EXPECT_EQ(report.store.missing, 8u);
}

TEST_F(Ingestion, WhatIsReadOnceLeavesMissingRowsToTheNextRun) {
  store_.fault = Fault::drop;
  store_.fault_at = 1;
  ListSource source;
  source.texts = many(8);
  source.once = true;
  EXPECT_EQ(run(source).store.missing, 4u);
  EXPECT_EQ(run(many(8)).store.missing, 0u);
  expect_all(many(8));
}

// A text that was lost and is no longer asked for is nobody's loss.
TEST_F(Ingestion, MissingTextsThatAreGoneAreForgotten) {
  store_.fault = Fault::killed;
  store_.fault_at = 1;
  EXPECT_THROW(run(many(8)), Killed);
  store_.fault = Fault::none;
  const std::vector<std::string> others{"other 1", "other 2"};
  const IngestReport report = run(others);
  EXPECT_EQ(report.store.missing, 0u);
  EXPECT_EQ(report.progress.pass, 1);
}

// A store that was replaced by an empty one, and a run that brings something else: nothing of it can be sent again.
TEST_F(Ingestion, RowsThatTheStoreLostAreToldOf) {
  run(many(6));
  store_.remove_dataset("texts");
  const IngestReport report = run({"another"});
  EXPECT_EQ(report.progress.sent, 1u);
  EXPECT_EQ(report.store.missing, 0u);
  EXPECT_EQ(report.gone, 6u);
  ASSERT_FALSE(notes_.empty());
  EXPECT_NE(notes_.back().find("lacks 6 rows"), std::string::npos) << notes_.back();
  const std::uintmax_t size = std::filesystem::file_size(path_);
  EXPECT_EQ(run({"another"}).gone, 6u);
  EXPECT_EQ(std::filesystem::file_size(path_), size) << "nothing has changed";
  notes_.clear();
  EXPECT_EQ(run(many(6)).gone, 0u);
  EXPECT_TRUE(notes_.empty());
}

TEST_F(Ingestion, ADatasetThatWasRemovedIsFilledAnew) {
  run(many(6));
  store_.remove_dataset("texts");
  EXPECT_EQ(run(many(6)).progress.sent, 6u);
  expect_all(many(6));
}

TEST_F(Ingestion, AStoreThatIsBusyIsWaitedFor) {
  store_.busy_polls = 5;
  run(many(6));
  expect_all(many(6));
  store_.unindexed = 2;
  EXPECT_EQ(run(many(6)).store.unindexed, 2u);
  EXPECT_EQ(store_.rows.size(), 6u);  // they are there: nothing is sent again
}

// Whoever stores there too may never end.
TEST_F(Ingestion, AStoreThatGoesOnChangingIsGivenUp) {
  store_.exists = true;
  options_.send.patience = {};
  std::stop_source stop;
  int asked = 0;
  store_.on_readiness = [&] {
    --store_.unindexed;
    if (++asked == 100) stop.request_stop();
  };
  const DatasetWait wait(store_, "texts", options_.send, calls_.note);
  expect_error(ErrorKind::busy, {"texts", "still taking in rows"}, [&] { wait.until_settled(stop.get_token()); });
}

TEST_F(Ingestion, OthersRowsAreNotOurs) {
  store_.exists = true;
  store_.dimension = kFakeWidth;
  store_.rows = {{.id = 41, .text = "another's", .vector = {1, 2, 3}}};
  Journal journal(path_, subject());
  journal.begin(rows_before(store_, "texts", {}));
  EXPECT_EQ(journal.before().first_id, 42u);
  ListSource source;
  source.texts = many(5);
  const IngestReport report =
      ingest(source, embedder_, store_, "texts", ingest_schema(kFakeWidth, {}, "m"), journal, options_, calls_);
  EXPECT_EQ(report.store.missing, 0u);
  EXPECT_EQ(report.store.rows, 5u);
  EXPECT_EQ(store_.rows.back().id, 46);
}

// Rows of others may still be on their way into it: not counted, they would later look like those of another program.
TEST_F(Ingestion, AJournalIsBegunOnceTheStoreShowsAllRows) {
  for (const bool is_busy : {true, false}) {
    start_anew();
    store_.exists = true;
    store_.dimension = kFakeWidth;
    store_.rows = {{.id = 3, .text = "another's", .vector = {1, 2, 3}}};
    store_.coming = {{.id = 41, .text = "another's, late", .vector = {1, 2, 3}}};
    store_.late_polls = 2;
    store_.late_is_busy = is_busy;
    Journal journal(path_, subject());
    begin(journal, UnknownRows::added_to);
    EXPECT_EQ(journal.before().first_id, 42u) << is_busy;
    EXPECT_EQ(journal.before().rows, 2u) << is_busy;
  }
}

// They show in scans with filters, and the store counts them.
TEST_F(Ingestion, RowsThatWereDeletedKeepTheirIds) {
  for (const bool counts : {true, false}) {  // the store may not have an index of all of them
    start_anew();
    store_.exists = true;
    store_.dimension = kFakeWidth;
    for (std::int64_t id = 0; id < 5; ++id) {
      store_.rows.push_back({.id = id, .text = "another's " + std::to_string(id), .vector = {1, 2, 3}});
    }
    store_.remove("texts", "4");
    store_.unindexed = counts ? 0 : 1;
    Journal journal(path_, subject());
    begin(journal, UnknownRows::added_to);
    EXPECT_EQ(journal.before().first_id, 5u);
    ListSource source;
    source.texts = many(3);
    for (int i = 0; i < 2; ++i) {
      source.rewind();
      const IngestReport report =
          ingest(source, embedder_, store_, "texts", ingest_schema(kFakeWidth, {}, "m"), journal, options_, calls_);
      EXPECT_EQ(report.store.missing, 0u);
      EXPECT_EQ(report.store.unindexed, 0u) << "rows of others are no concern of ours";
    }
    EXPECT_EQ(store_.rows.size(), 8u);
    EXPECT_EQ(store_.scans, counts ? 1 : 2) << "counts were enough";
    store_.unindexed = 0;
  }
}

TEST_F(Ingestion, RowsOfOthersThatShowLateAreRefusedToo) {
  store_.exists = true;
  store_.dimension = kFakeWidth;
  store_.coming = {{.id = 41, .text = "another's, late", .vector = {1, 2, 3}}};
  store_.late_polls = 2;
  Journal journal(path_, subject());
  expect_error(ErrorKind::usage, {"knows nothing of", "the advice"}, [&] { begin(journal); });
  EXPECT_TRUE(journal.is_new());
}

// It says so before it looks whether there is such a dataset.
TEST_F(Ingestion, AStoreThatIsBusyAsAWholeIsWaitedForByANewDataset) {
  for (const UnknownRows unknown_rows : {UnknownRows::refused, UnknownRows::added_to}) {
    start_anew();
    store_.busy_polls = 3;
    Journal journal(path_, subject());
    begin(journal, unknown_rows);
    EXPECT_FALSE(journal.is_new());
    EXPECT_EQ(journal.before().rows, 0u);
    EXPECT_EQ(journal.before().first_id, 0u);
    EXPECT_EQ(store_.busy_polls, 0);
  }
}

TEST_F(Ingestion, ABusyStoreMayHaveLostADatasetThatAJournalKnows) {
  run(many(3));
  store_.remove_dataset("texts");
  store_.busy_polls = 1;
  Journal journal(path_, subject());
  begin(journal);
  EXPECT_EQ(store_.busy_polls, 0);
}

// A server comes there with every request, and the columns are those of a scan.
TEST_F(Ingestion, AKnownDatasetIsNotAskedForItsColumns) {
  run(many(3));
  store_.remembered = store_.schema("texts");
  store_.schemas = 0;
  Journal journal(path_, subject());
  begin(journal);
  EXPECT_EQ(store_.schemas, 0);
  // Unless they do not fit: the dataset may have been made anew since.
  store_.remembered->dimension = kFakeWidth + 1;
  begin(journal);
  EXPECT_EQ(store_.schemas, 1);
  store_.dimension = kFakeWidth + 1;
  expect_error(ErrorKind::bad_input, {"vectors of 4 values"}, [&] { begin(journal); });
}

// Two journals of one dataset would give the same ids.
TEST_F(Ingestion, ADatasetInWhichAnotherGivesIdsIsRefused) {
  for (const std::size_t before : {0u, 6u}) {
    run(many(before));
    const std::size_t rows = store_.rows.size();
    store_.exists = true;
    store_.dimension = kFakeWidth;
    store_.rows.push_back({.id = 9, .text = "another's", .vector = {1, 2, 3}});
    expect_error(ErrorKind::usage, {"has not given"}, [&] { run(many(8)); });
    EXPECT_EQ(store_.rows.size(), rows + 1) << "nothing is sent";
    store_.rows.pop_back();
  }
  run(many(8));
  expect_all(many(8));
}

TEST_F(Ingestion, AnInterruptedRunGoesOn) {
  const std::vector<std::string> texts = many(40);
  calls_.watch = [](const IngestProgress& progress) { return progress.sent < 12; };
  expect_error(ErrorKind::cancelled, {"interrupted"}, [&] { run(texts); });
  calls_.watch = nullptr;
  run(texts);
  expect_all(texts);
}

// The store takes nothing and says nothing: a batch that is on its way must not hold the end of the run.
TEST_F(Ingestion, ABatchOnItsWayDoesNotHoldTheEnd) {
  store_.stall_puts = true;
  calls_.watch = [this](const IngestProgress&) { return store_.stalled == 0; };
  expect_error(ErrorKind::cancelled, {"interrupted"}, [&] { run(many(8)); });
  EXPECT_EQ(store_.stalled, 0);
  store_.stall_puts = false;
  calls_.watch = nullptr;
  run(many(8));
  expect_all(many(8));
}

TEST_F(Ingestion, AQuestionWithoutAnAnswerDoesNotHoldTheEnd) {
  run(many(4));
  store_.silent = true;
  calls_.watch = [this](const IngestProgress&) { return store_.stalled == 0; };
  expect_error(ErrorKind::cancelled, {"interrupted"}, [&] { run(many(8)); });
  std::stop_source stop;
  stop.request_stop();
  Journal journal(path_, subject());
  expect_error(ErrorKind::cancelled, {"stopped"}, [&] { begin(journal, UnknownRows::refused, stop.get_token()); });
}

TEST_F(Ingestion, ATextThatCannotBeEmbeddedEndsTheRun) {
  for (const bool at_once : {true, false}) {
    embedder_.at_once = at_once;
    embedder_.unbearable = "text 9";
    expect_error(ErrorKind::bad_file, {"finite"}, [&] { run(many(20)); });
  }
  embedder_.unbearable.clear();
  run(many(20));
  expect_all(many(20));
}

TEST_F(Ingestion, ADatasetOfAnotherWidthIsRefused) {
  store_.exists = true;
  store_.dimension = 7;
  store_.rows = {};
  expect_error(ErrorKind::bad_input, {"mismatch"}, [&] { run(many(3)); });
}

}  // namespace
}  // namespace quarrel::test
