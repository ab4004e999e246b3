// What has to be known of a dataset before texts go into it: whether the vectors fit it, and which rows it has already.
// Called by `quarrel embed --to` and the server; any thread, blocks.
#pragma once

#include <cstdint>
#include <stop_token>
#include <string_view>

#include "ingest/dataset_wait.h"
#include "ingest/journal.h"

namespace quarrel {

// Rows in the dataset that a new journal knows nothing of.
enum class UnknownRows { refused, added_to };

// Refuses a dataset that the vectors do not fit, and begins a new journal, once the store shows all rows that it has.
// `advice` ends the message about rows that are refused. Throws Error: bad_input, usage, what the wait throws, and what
// the client throws.
void begin_dataset(const DatasetWait& store, Journal& journal, std::int32_t dimension, UnknownRows unknown_rows,
                   std::string_view advice, const std::stop_token& stop = {});

// Of a store that refuses rows: whether the vectors fit the dataset as it is now, which may have been made anew since
// its columns were last asked for. Throws as above.
void check_live_columns(const DatasetWait& store, std::int32_t dimension, const std::stop_token& stop = {});

}  // namespace quarrel
