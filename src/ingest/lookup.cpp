#include "ingest/lookup.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <exception>
#include <limits>
#include <map>
#include <mutex>
#include <span>
#include <thread>

namespace quarrel {
namespace {

// A call makes the store look at every row of the dataset, which takes it longer than sending so many more.
constexpr std::uint64_t kWidestGap = 256;
constexpr std::uint64_t kWidestRange = 4096;
constexpr std::size_t kCallsAtOnce = 4;  // as many as a client has connections
// A repeated id is a second row: so often one may be there before the rest is not waited for.
constexpr std::uint64_t kMostRepeats = 16;

// The hits by their ids; an id may have been found more than once.
using Places = std::map<std::uint64_t, std::vector<FoundText*>>;

struct IdRange {
  std::uint64_t first = 0;
  std::uint64_t last = 0;
};

enum class IdColumn { numbers, texts, unreachable };

IdColumn id_column(const std::optional<StoredSchema>& schema) {
  if (!schema) return IdColumn::numbers;  // no rows: nothing will be found
  const auto id = std::ranges::find(schema->columns, "id", &ColumnInfo::name);
  if (id == schema->columns.end()) return IdColumn::unreachable;
  if (id->type == "string") return IdColumn::texts;
  return id->type == "int64" ? IdColumn::numbers : IdColumn::unreachable;
}

// Ids that lie near each other share a call where they are compared as numbers.
std::vector<IdRange> ranges_of(const Places& places, IdColumn column) {
  std::vector<IdRange> ranges;
  for (const auto& [id, hits] : places) {
    if (id > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) break;  // no row has such an id
    const bool near = column == IdColumn::numbers && !ranges.empty() && id - ranges.back().last <= kWidestGap &&
                      id - ranges.back().first < kWidestRange;
    if (near) {
      ranges.back().last = id;
    } else {
      ranges.push_back({.first = id, .last = id});
    }
  }
  return ranges;
}

std::vector<RowFilter> filters_of(const IdRange& range) {
  const std::string first = fmt::format("{}", range.first);
  if (range.first == range.last) return {{.field = "id", .comparison = Comparison::equal, .value = first}};
  return {{.field = "id", .comparison = Comparison::greater_or_equal, .value = first},
          {.field = "id", .comparison = Comparison::less_or_equal, .value = fmt::format("{}", range.last)}};
}

std::optional<std::uint64_t> id_of(const StoredRow& row) {
  if (row.id) return *row.id < 0 ? std::nullopt : std::optional(static_cast<std::uint64_t>(*row.id));
  std::uint64_t id = 0;
  const char* const end = row.id_text.data() + row.id_text.size();
  const auto [rest, error] = std::from_chars(row.id_text.data(), end, id);
  return error == std::errc() && rest == end ? std::optional(id) : std::nullopt;
}

void take_row(const StoredRow& row, FoundText& found) {
  found.state = TextState::found;
  found.text = row.text;
  found.columns.clear();
  for (const StoredColumn& column : row.columns) {
    if (column.name == "doc_id") {
      found.doc_id = column.value;
    } else if (column.name == "source") {
      found.source = column.value;
    } else if (column.name == "metadata") {
      found.metadata = column.value;
    } else if (!column.null) {
      found.columns.emplace_back(column.name, column.value);
    }
  }
}

// What the store sends is believed of rows that were asked for, and of as many as there can be.
void look_up(LongbowClient& client, const std::string& dataset, const IdRange& range, const Places& places,
             const std::stop_token& stop) {
  const std::uint64_t most = kMostRepeats * (range.last - range.first + 1);
  std::uint64_t rows = 0;
  client.scan(
      dataset, filters_of(range),
      [&](const StoredRow& row) {
        const auto id = id_of(row);
        if (id && *id >= range.first && *id <= range.last) {
          if (const auto hits = places.find(*id); hits != places.end()) {
            for (FoundText* found : hits->second) take_row(row, *found);
          }
        }
        return ++rows < most;
      },
      stop, ScanLimit::whole_call);
}

// Several at once; each range has hits of its own. The first failure ends the others.
void look_up_all(LongbowClient& client, const std::string& dataset, std::span<const IdRange> ranges,
                 const Places& places, const std::stop_token& stop) {
  if (ranges.size() == 1) return look_up(client, dataset, ranges.front(), places, stop);
  std::stop_source ended;
  const std::stop_callback chain(stop, [&ended] { ended.request_stop(); });
  std::atomic<std::size_t> next = 0;
  std::mutex mutex;
  std::exception_ptr failure;
  const auto work = [&] {
    while (!ended.stop_requested()) {
      const std::size_t index = next++;
      if (index >= ranges.size()) return;
      try {
        look_up(client, dataset, ranges[index], places, ended.get_token());
      } catch (...) {
        const std::scoped_lock lock(mutex);
        if (!failure) failure = std::current_exception();
        ended.request_stop();
      }
    }
  };
  {
    std::vector<std::jthread> others;
    for (std::size_t i = 1; i < std::min(kCallsAtOnce, ranges.size()); ++i) others.emplace_back(work);
    work();
  }
  if (failure) std::rethrow_exception(failure);
  if (stop.stop_requested()) fail(ErrorKind::cancelled, "the search was stopped");
}

}  // namespace

std::vector<FoundText> find_texts(LongbowClient& client, const std::string& dataset, const SearchRequest& request,
                                  const std::stop_token& stop) {
  std::vector<FoundText> texts;
  for (const SearchHit& hit : client.search(dataset, request, SearchPath::automatic, stop)) {
    texts.push_back({.id = hit.id, .score = hit.score});
  }
  if (texts.empty()) return texts;
  const IdColumn column = id_column(client.remembered_schema(dataset, stop));
  if (column == IdColumn::unreachable) {
    for (FoundText& found : texts) found.state = TextState::unreachable;
    return texts;
  }
  Places places;
  for (FoundText& found : texts) places[found.id].push_back(&found);
  look_up_all(client, dataset, ranges_of(places, column), places, stop);
  return texts;
}

}  // namespace quarrel
