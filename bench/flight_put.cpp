// Sends vectors to a store and says how long that took, for tools/bench_flight.py:
//
//   flight_put ADDRESS ROWS DIMENSION BATCH
//
// prints the seconds from the first batch to the end of the stream, and the most memory that the process has held, in
// MB. Batches are filled as an embedding run fills them, one copy a vector, which counts.
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <string>
#include <vector>

#include "base/clock.h"
#include "flight/module.h"

namespace {

void send(const quarrel::LongbowAddress& address, std::size_t rows, std::int32_t dimension, std::size_t batch_rows) {
  const auto client = quarrel::connect_longbow(address);
  const quarrel::DatasetSchema schema = {.dimension = dimension, .text = false};
  const auto batch = client->new_batch(schema, batch_rows);
  std::vector<float> vector(static_cast<std::size_t>(dimension));
  for (std::size_t i = 0; i < vector.size(); ++i) vector[i] = 0.001f * static_cast<float>(i);
  // The connection is made, and what a first call costs is paid.
  client->readiness(address.dataset);
  const quarrel::Clock::time_point start = quarrel::Clock::now();
  const auto stream = client->put(address.dataset, schema);
  for (std::size_t sent = 0; sent < rows;) {
    batch->clear();
    for (const std::size_t end = std::min(rows, sent + batch_rows); sent < end; ++sent) {
      std::ranges::copy(vector, batch->vector(batch->add({.id = static_cast<std::int64_t>(sent)})).begin());
    }
    stream->append(*batch);
  }
  stream->close();
  const double seconds = quarrel::seconds_since(start);
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  fmt::print("{:.6f} {}\n", seconds, usage.ru_maxrss / 1024);
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 5) {
    fmt::print(stderr, "flight_put ADDRESS ROWS DIMENSION BATCH\n");
    return 2;
  }
  try {
    send(quarrel::read_longbow_address(arguments[1]), std::stoul(arguments[2]), std::stoi(arguments[3]),
         std::stoul(arguments[4]));
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "flight_put: {}\n", error.what());
    return 1;
  }
}
