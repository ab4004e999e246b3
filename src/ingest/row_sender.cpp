#include "ingest/row_sender.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/printable.h"

namespace quarrel {
namespace {

std::vector<RowFilter> between(std::uint32_t first, std::uint32_t last) {
  return {{.field = "id", .comparison = Comparison::greater_or_equal, .value = fmt::format("{}", first)},
          {.field = "id", .comparison = Comparison::less_or_equal, .value = fmt::format("{}", last)}};
}

}  // namespace

RowSender::RowSender(LongbowClient& client, std::string dataset, DatasetSchema schema, Journal& journal,
                     const SendOptions& options, Note note)
    : client_(client),
      dataset_(std::move(dataset)),
      schema_(std::move(schema)),
      journal_(journal),
      options_(options),
      store_(client, dataset_, options, std::move(note)) {}

void RowSender::send(VectorBatch& batch, std::span<const std::uint32_t> ids, const std::stop_token& stop) {
  const std::uint64_t number = journal_.sending(ids);
  std::chrono::milliseconds time = options_.first_pause;
  for (int tried = 1;; ++tried) {
    switch (attempt(batch, number, tried >= options_.attempts, stop)) {
      case Attempt::done: return;
      case Attempt::again: break;
      case Attempt::look:
        if (look_for(number, ids, stop)) return;
        break;
    }
    store_.note(fmt::format("a batch is sent again in {} ms", time.count()));
    DatasetWait::pause(time, stop);
    client_.note_retry();
    time *= 2;
  }
}

RowSender::Attempt RowSender::attempt(VectorBatch& batch, std::uint64_t number, bool last,
                                      const std::stop_token& stop) {
  try {
    const std::unique_ptr<VectorStream> stream = client_.put(dataset_, schema_, stop);
    stream->append(batch);
    bytes_ += stream->close().bytes;
    journal_.acknowledged(number);
    return Attempt::done;
  } catch (const LongbowError& error) {
    if (stop.stop_requested()) throw;  // no failure of the store's
    if (error.after_failure() == AfterFailure::give_up || last) {
      client_.note_failure();
      throw;
    }
    store_.note(error.what());
    return error.after_failure() == AfterFailure::retry ? Attempt::again : Attempt::look;
  }
}

// All of it may be there, nothing, or a part. Only where there is nothing is the batch sent again as it is; single rows
// that are missing come with another pass over the texts.
bool RowSender::look_for(std::uint64_t number, std::span<const std::uint32_t> ids, const std::stop_token& stop) {
  std::vector<std::uint8_t> times;
  try {
    if (store_.until_settled(stop).state == ReadyState::missing) return false;
    times = seen(ids, stop);
  } catch (const Error&) {
    if (!stop.stop_requested()) client_.note_failure();  // the batch is given up, and nobody knows what became of it
    throw;
  }
  std::vector<std::uint32_t> missing;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (times[i] == 0) missing.push_back(ids[i]);
  }
  if (missing.size() == ids.size()) return false;
  journal_.looked_for(number, missing);
  return true;
}

std::vector<std::uint8_t> RowSender::seen(std::span<const std::uint32_t> ids, const std::stop_token& stop) {
  if (ids.empty()) return {};
  std::vector<std::uint32_t> sorted(ids.begin(), ids.end());
  std::ranges::sort(sorted);
  std::vector<std::uint8_t> times(sorted.size());
  for (int tried = 1;; ++tried) {
    std::ranges::fill(times, std::uint8_t{0});
    try {
      client_.scan(
          dataset_, between(sorted.front(), sorted.back()),
          [&](const StoredRow& row) {
            if (!row.id) return true;
            const auto found =
                std::ranges::lower_bound(sorted, *row.id, {}, [](std::uint32_t id) -> std::int64_t { return id; });
            if (found == sorted.end() || *found != *row.id) return true;
            std::uint8_t& count = times[static_cast<std::size_t>(found - sorted.begin())];
            if (count < 0xFF) ++count;
            return true;
          },
          stop);
      break;
    } catch (const LongbowError& error) {
      if (error.kind() == ErrorKind::not_found) return std::vector<std::uint8_t>(ids.size());
      if (error.after_failure() == AfterFailure::give_up || tried >= options_.attempts || stop.stop_requested()) throw;
      store_.note(error.what());
    }
    DatasetWait::pause(options_.first_pause, stop);
  }
  std::vector<std::uint8_t> result(ids.size());
  for (std::size_t i = 0; i < ids.size(); ++i) {
    result[i] = times[static_cast<std::size_t>(std::ranges::lower_bound(sorted, ids[i]) - sorted.begin())];
  }
  return result;
}

// Somebody else gives the ids that this journal would give next: rows could not be told apart.
void RowSender::refuse_rows_of_others(const std::stop_token& stop) {
  bool found = false;
  client_.scan(
      dataset_,
      {{.field = "id", .comparison = Comparison::greater_or_equal, .value = fmt::format("{}", journal_.next_id())}},
      [&found](const StoredRow&) {
        found = true;
        return false;
      },
      stop);
  if (!found) return;
  fail(ErrorKind::usage,
       "the dataset {} has rows with ids that its journal has not given: another program stores there, or the journal "
       "was damaged; choose another dataset, or add to this one with a new journal",
       printable(dataset_));
}

StoreState RowSender::settle(const std::stop_token& stop) {
  const Journal::Counts counts = journal_.counts();
  const std::vector<std::uint32_t> unsure = journal_.unsure();
  const Readiness ready = unsure.empty() ? store_.until_ready(stop) : store_.until_settled(stop);
  if (ready.state == ReadyState::missing) {
    if (counts.sent() > 0) journal_.looked_for_all(journal_.sent());
    return {.missing = counts.sent()};
  }
  const auto missing_of = [](std::span<const std::uint32_t> ids, std::span<const std::uint8_t> times) {
    std::vector<std::uint32_t> missing;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if (times[i] == 0) missing.push_back(ids[i]);
    }
    return missing;
  };
  // The cheap way: those without an answer are looked for, and then the count is what all others are.
  const std::vector<std::uint8_t> unsure_times = unsure.empty() ? std::vector<std::uint8_t>{} : seen(unsure, stop);
  const std::vector<std::uint32_t> not_there = missing_of(unsure, unsure_times);
  const std::uint64_t believed = counts.there() + unsure.size() - not_there.size();
  const bool single = std::ranges::all_of(unsure_times, [](std::uint8_t times) { return times <= 1; });
  const std::uint64_t before = journal_.before().rows;
  if (single && ready.indexed && std::cmp_equal(*ready.indexed, before + believed)) {
    std::vector<std::uint32_t> missing = journal_.missing();
    missing.insert(missing.end(), not_there.begin(), not_there.end());
    if (counts.sent() > 0) journal_.looked_for_all(missing);
    return {.rows = believed, .missing = missing.size()};
  }
  const std::vector<std::uint32_t> all = journal_.sent();
  const std::vector<std::uint8_t> times = seen(all, stop);
  if (ready.indexed &&
      std::cmp_greater(*ready.indexed, before + std::accumulate(times.begin(), times.end(), std::uint64_t{0}))) {
    refuse_rows_of_others(stop);
  }
  const std::vector<std::uint32_t> missing = missing_of(all, times);
  if (!all.empty()) journal_.looked_for_all(missing);
  StoreState state{.rows = all.size() - missing.size(), .missing = missing.size()};
  state.repeated =
      static_cast<std::uint64_t>(std::ranges::count_if(times, [](std::uint8_t count) { return count > 1; }));
  if (ready.indexed && std::cmp_less(*ready.indexed, before + state.rows)) {
    state.unindexed = before + state.rows - static_cast<std::uint64_t>(*ready.indexed);
  }
  return state;
}

// Rows that were deleted keep their ids: they show in every scan with a filter, and so would look like rows of another
// program later, if only a scan without one had been asked, which hides them.
RowsBefore rows_before(LongbowClient& client, const std::string& dataset, const std::stop_token& stop) {
  std::int64_t largest = -1;
  RowsBefore before;
  try {
    before.rows = client.scan(
        dataset, {{.field = "id", .comparison = Comparison::greater_or_equal, .value = "0"}},
        [&](const StoredRow& row) {
          if (row.id) largest = std::max(largest, *row.id);
          return true;
        },
        stop);
  } catch (const LongbowError& error) {
    if (error.kind() != ErrorKind::not_found) throw;
  }
  if (largest >= kLargestVectorId) {
    fail(ErrorKind::bad_input, "the dataset {} has the id {}: no number of 32 bits is free above it", dataset, largest);
  }
  before.first_id = static_cast<std::uint32_t>(largest + 1);
  return before;
}

}  // namespace quarrel
