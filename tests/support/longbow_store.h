// What Longbow keeps and how it behaves, without the network: datasets of Arrow batches, visible some time after they
// were taken, appended and never replaced. The quirks are Longbow's own (docs/longbow.md); the server around it is
// longbow_server.h. Any thread may call.
#pragma once

#include <arrow/array.h>
#include <arrow/record_batch.h>
#include <arrow/result.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"

namespace quarrel::longbow {

struct Filter {
  std::string field;
  std::string comparison;
  std::string value;
};

struct Hit {
  std::uint64_t id = 0;
  float score = 0;
};

struct Query {
  std::string dataset = {};
  std::vector<float> vector = {};
  std::int64_t k = 10;
  std::vector<Filter> filters = {};
  std::string text = {};
  double alpha = 0;
};

struct Readiness {
  bool found = false;
  bool busy = false;
  std::int64_t indexed = 0;
};

class Store {
 public:
  // From now on what was taken shows after so long; nothing: not before `show_all`.
  void set_visible_after(std::optional<std::chrono::milliseconds> delay);
  void show_all();
  // Rows in all beyond which what is taken is thrown away without a word: the store's memory limit.
  void set_most_rows(std::optional<std::int64_t> rows);

  // What is taken is also written there, and what lies there is taken now: a server that was killed finds it again.
  arrow::Status set_folder(const std::filesystem::path& folder);

  // Makes the dataset where there is none. Invalid where a column has another type than it had.
  arrow::Status open(const std::string& dataset, const std::shared_ptr<arrow::Schema>& schema);
  void take(const std::string& dataset, std::vector<std::shared_ptr<arrow::RecordBatch>> batches);

  // The visible rows as a scan gives them, the youngest batch first; none: the dataset is there and empty.
  arrow::Result<std::vector<std::shared_ptr<arrow::RecordBatch>>> scan(const std::string& dataset,
                                                                       const std::vector<Filter>& filters);
  arrow::Result<std::vector<Hit>> search(const Query& query);
  arrow::Status remove(const std::string& dataset, const std::string& id);
  arrow::Status remove_dataset(const std::string& dataset);
  Readiness readiness(const std::string& dataset);
  // Batches and bytes.
  arrow::Result<std::pair<std::int64_t, std::int64_t>> info(const std::string& dataset);
  std::vector<std::string> names(const std::string& contains) const;

 private:
  struct Pending {
    std::optional<Clock::time_point> due;
    std::shared_ptr<arrow::RecordBatch> batch;
  };
  struct Dataset {
    std::map<std::string, std::shared_ptr<arrow::DataType>> types;
    std::vector<std::shared_ptr<arrow::RecordBatch>> batches;
    std::vector<Pending> pending;
    std::set<std::pair<std::size_t, std::int64_t>> removed;  // batch, row
  };
  arrow::Result<Dataset*> find(const std::string& name);
  void show_due(Dataset& dataset);
  void write(const std::string& dataset, const arrow::RecordBatch& batch);

  mutable std::mutex mutex_;
  std::map<std::string, Dataset> datasets_;
  std::optional<std::chrono::milliseconds> delay_ = std::chrono::milliseconds(0);
  std::optional<std::int64_t> most_rows_;
  std::int64_t rows_ = 0;
  std::filesystem::path folder_;
  int files_ = 0;
};

}  // namespace quarrel::longbow
