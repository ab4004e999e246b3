#include "ingest/dataset_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "base/printable.h"
#include "ingest/row_sender.h"

namespace quarrel {
namespace {

bool fits(const StoredSchema& schema, std::int32_t dimension) {
  return schema.dimension == dimension && schema.id_type == IdType::int64;
}

void require_fit(const DatasetWait& store, const StoredSchema& schema, std::int32_t dimension) {
  if (schema.dimension != dimension) {
    fail(ErrorKind::bad_input, "the dataset {} holds vectors of {} values; the model's have {}",
         printable(store.dataset()), schema.dimension, dimension);
  }
  if (!fits(schema, dimension)) {
    fail(ErrorKind::bad_input, "the ids of the dataset {} are not numbers: choose another dataset",
         printable(store.dataset()));
  }
}

// A store that is busy as a whole says so before it looks whether there is such a dataset, so that one which is new can
// come up to here.
template <typename Ask>
std::optional<StoredSchema> columns_if_any(const Ask& ask) {
  try {
    return ask();
  } catch (const LongbowError& error) {
    if (error.kind() != ErrorKind::not_found) throw;
    return std::nullopt;
  }
}

std::optional<StoredSchema> stored_columns(const DatasetWait& store, const std::stop_token& stop) {
  return columns_if_any([&] { return store.client().schema(store.dataset(), stop); });
}

// Columns are those of a scan of the whole dataset, and a server comes here with every request: what was asked once is
// remembered. Where that does not fit, the dataset may have been made anew since.
void check_columns(const DatasetWait& store, std::int32_t dimension, const std::stop_token& stop) {
  const std::optional<StoredSchema> known =
      columns_if_any([&] { return store.client().remembered_schema(store.dataset(), stop); });
  if (!known || fits(*known, dimension)) return;
  check_live_columns(store, dimension, stop);
}

// Of a dataset that the store has not said to be missing.
RowsBefore known_rows(const DatasetWait& store, std::int32_t dimension, UnknownRows unknown_rows,
                      std::string_view advice, const std::stop_token& stop) {
  const auto has_rows = [&] {
    const std::optional<StoredSchema> schema = stored_columns(store, stop);
    if (!schema) return false;
    require_fit(store, *schema, dimension);
    if (unknown_rows == UnknownRows::added_to) return true;
    fail(ErrorKind::usage, "the dataset {} has rows that its journal knows nothing of: {}", printable(store.dataset()),
         advice);
  };
  has_rows();  // what is refused in any case is not waited for
  // Rows that are still on their way into the dataset have ids too: a journal that does not count them would give some
  // of these again, and later take the rows for another program's.
  const Readiness settled = store.until_settled(stop);
  if (settled.state == ReadyState::missing || !has_rows()) return {};
  RowsBefore before = rows_before(store.client(), store.dataset(), stop);
  // What the store says here is what its later counts are compared with.
  if (settled.indexed) before.rows = static_cast<std::uint64_t>(std::max<std::int64_t>(*settled.indexed, 0));
  return before;
}

}  // namespace

void check_live_columns(const DatasetWait& store, std::int32_t dimension, const std::stop_token& stop) {
  if (const auto schema = stored_columns(store, stop)) require_fit(store, *schema, dimension);
}

void begin_dataset(const DatasetWait& store, Journal& journal, std::int32_t dimension, UnknownRows unknown_rows,
                   std::string_view advice, const std::stop_token& stop) {
  const ReadyState state = store.client().readiness(store.dataset(), stop).state;
  if (!journal.is_new()) {
    if (state != ReadyState::missing) check_columns(store, dimension, stop);
    return;
  }
  if (state == ReadyState::missing) return journal.begin({});
  if (state == ReadyState::busy) {
    store.note(fmt::format("the store of the dataset {} is busy: waiting until it has taken in what it was sent",
                           printable(store.dataset())));
  }
  journal.begin(known_rows(store, dimension, unknown_rows, advice, stop));
}

}  // namespace quarrel
