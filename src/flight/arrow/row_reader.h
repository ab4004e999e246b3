// Rows of Arrow's columns as the client's callers see them. One thread at a time.
#pragma once

#include <arrow/record_batch.h>

#include <memory>
#include <string>
#include <vector>

#include "flight/longbow.h"

namespace quarrel::flight {

StoredSchema stored_schema(const arrow::Schema& schema);

class RowReader {
 public:
  // Gives each row to the visitor; false: it wants no more.
  bool visit(const arrow::RecordBatch& batch, const RowVisitor& visitor);

 private:
  struct Columns;
  void read_id(const Columns& columns, std::int64_t row);
  void read_vector(const Columns& columns, std::int64_t row);

  StoredRow row_;
  std::string id_text_;
  std::vector<float> values_;  // of float16
  std::vector<StoredColumn> others_;
  std::vector<std::string> texts_;  // of columns that are no texts
};

// The hits of a search's batch, behind those in `hits` until these are `most`. False where the columns are not those of
// hits, or one is missing in a row.
bool append_hits(const arrow::RecordBatch& batch, std::size_t most, std::vector<SearchHit>& hits);

}  // namespace quarrel::flight
