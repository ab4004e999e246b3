#include "ingest/dataset_check.h"

#include <optional>

#include "base/error.h"
#include "base/printable.h"
#include "ingest/row_sender.h"

namespace quarrel {

void begin_dataset(LongbowClient& client, const std::string& dataset, Journal& journal, std::int32_t dimension,
                   UnknownRows unknown_rows, std::string_view advice, const std::stop_token& stop) {
  const bool is_there = client.readiness(dataset, stop).state != ReadyState::missing;
  const std::optional<StoredSchema> schema = is_there ? client.schema(dataset, stop) : std::nullopt;
  if (schema && schema->dimension != dimension) {
    fail(ErrorKind::bad_input, "the dataset {} holds vectors of {} values; the model's have {}", printable(dataset),
         schema->dimension, dimension);
  }
  if (schema && schema->id_type != IdType::int64) {
    fail(ErrorKind::bad_input, "the ids of the dataset {} are not numbers: choose another dataset", printable(dataset));
  }
  if (!journal.is_new()) return;
  if (schema && unknown_rows == UnknownRows::refused) {
    fail(ErrorKind::usage, "the dataset {} has rows that its journal knows nothing of: {}", printable(dataset), advice);
  }
  journal.begin(schema ? rows_before(client, dataset, stop) : RowsBefore{});
}

}  // namespace quarrel
