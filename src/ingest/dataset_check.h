// What has to be known of a dataset before texts go into it: whether the vectors fit it, and which rows it has already.
// Called by `quarrel embed --to` and the server; any thread, blocks.
#pragma once

#include <cstdint>
#include <stop_token>
#include <string>
#include <string_view>

#include "flight/longbow.h"
#include "ingest/journal.h"

namespace quarrel {

// Rows in the dataset that a new journal knows nothing of.
enum class UnknownRows { refused, added_to };

// Refuses a dataset that the vectors do not fit, and begins a new journal. `advice` ends the message about rows that
// are refused. Throws Error: bad_input, usage, and what the client throws.
void begin_dataset(LongbowClient& client, const std::string& dataset, Journal& journal, std::int32_t dimension,
                   UnknownRows unknown_rows, std::string_view advice, const std::stop_token& stop = {});

}  // namespace quarrel
