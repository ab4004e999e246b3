// Sends vectors to a store and says how long that took, for tools/bench_flight.py:
//
//   flight_put ADDRESS ROWS DIMENSION BATCH [ready]
//
// prints the seconds from the first batch to the end of the stream, and the most memory that the process has held, in
// MB. One batch is filled again and again, one copy a vector, which counts; with `ready`, all batches are there before
// the clock starts. A client before this one has sent a few batches to another dataset: a program's first stream pays
// for what all others find in place.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "flight/module.h"

namespace {

// Of this program alone: what getrusage says begins with the memory of whoever started it.
long most_memory() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return std::stol(line.substr(6)) / 1024;
  }
  return 0;
}

class Rows {
 public:
  Rows(std::size_t rows, std::int32_t dimension) : left_(rows), vector_(static_cast<std::size_t>(dimension)) {
    for (std::size_t i = 0; i < vector_.size(); ++i) vector_[i] = 0.001f * static_cast<float>(i);
  }
  // False: there are none left.
  bool fill(quarrel::VectorBatch& batch) {
    if (left_ == 0) return false;
    batch.clear();
    for (; left_ > 0 && batch.rows() < batch.capacity(); --left_) {
      std::ranges::copy(vector_, batch.vector(batch.add({.id = next_++})).begin());
    }
    return true;
  }

 private:
  std::size_t left_;
  std::int64_t next_ = 0;
  std::vector<float> vector_;
};

void warm_up(const quarrel::LongbowAddress& address, const quarrel::DatasetSchema& schema, std::size_t batch_rows) {
  const auto client = quarrel::connect_longbow(address);
  const auto batch = client->new_batch(schema, batch_rows);
  const std::string dataset = address.dataset + "-before";
  const auto stream = client->put(dataset, schema);
  Rows source(8 * batch_rows, schema.dimension);
  while (source.fill(*batch)) stream->append(*batch);
  stream->close();
  client->remove_dataset(dataset);
}

void send(const quarrel::LongbowAddress& address, std::size_t rows, std::int32_t dimension, std::size_t batch_rows,
          bool ready) {
  const quarrel::DatasetSchema schema = {.dimension = dimension, .text = false};
  warm_up(address, schema, batch_rows);
  const auto client = quarrel::connect_longbow(address);
  std::vector<std::unique_ptr<quarrel::VectorBatch>> batches;
  Rows source(rows, dimension);
  do {
    batches.push_back(client->new_batch(schema, batch_rows));
  } while (ready && source.fill(*batches.back()));
  if (ready) batches.pop_back();
  // The connection is made, and what a first call costs is paid.
  client->readiness(address.dataset);
  const quarrel::Clock::time_point start = quarrel::Clock::now();
  const auto stream = client->put(address.dataset, schema);
  if (ready) {
    for (const auto& batch : batches) stream->append(*batch);
  } else {
    while (source.fill(*batches.front())) stream->append(*batches.front());
  }
  stream->close();
  const double seconds = quarrel::seconds_since(start);
  fmt::print("{:.6f} {}\n", seconds, most_memory());
}

}  // namespace

int main(int count, char** arguments) {
  const bool ready = count == 6 && std::string_view(arguments[5]) == "ready";
  if (count != 5 && !ready) {
    fmt::print(stderr, "flight_put ADDRESS ROWS DIMENSION BATCH [ready]\n");
    return 2;
  }
  try {
    send(quarrel::read_longbow_address(arguments[1]), std::stoul(arguments[2]), std::stoi(arguments[3]),
         std::stoul(arguments[4]), ready);
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "flight_put: {}\n", error.what());
    return 1;
  }
}
