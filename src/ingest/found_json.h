// What a search found, as JSON: for `quarrel search --json` and the server's answers. Any thread.
#pragma once

#include <nlohmann/json.hpp>

#include "ingest/lookup.h"

namespace quarrel {

// {"score","id"} and, where the row is still stored, "text", "doc_id", "source", "metadata" and other columns that it
// has. What was stored as JSON is JSON again; what cannot be read, or is larger than 8 MiB, stays a text.
nlohmann::ordered_json found_json(const FoundText& found);

}  // namespace quarrel
