#include "ingest/lookup.h"

#include <fmt/format.h>

namespace quarrel {
namespace {

void take_row(const StoredRow& row, FoundText& found) {
  found.stored = true;
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

}  // namespace

std::vector<FoundText> find_texts(LongbowClient& client, const std::string& dataset, const SearchRequest& request,
                                  const std::stop_token& stop) {
  std::vector<FoundText> texts;
  for (const SearchHit& hit : client.search(dataset, request, SearchPath::automatic, stop)) {
    FoundText& found = texts.emplace_back(FoundText{.id = hit.id, .score = hit.score});
    // A call a hit: filters can only be joined by "and", and a range of ids may be the whole dataset.
    client.scan(
        dataset, {{.field = "id", .comparison = Comparison::equal, .value = fmt::format("{}", hit.id)}},
        [&found](const StoredRow& row) {
          take_row(row, found);
          return true;
        },
        stop);
  }
  return texts;
}

}  // namespace quarrel
