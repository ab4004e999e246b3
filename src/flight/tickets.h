// What goes to the store and comes back as JSON: tickets of scans and searches, bodies and answers of actions. Pure
// functions of the client; nothing here knows Arrow.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "flight/longbow.h"

namespace quarrel {

// Of DoGet for a scan.
std::string scan_ticket(const std::string& dataset, const std::vector<RowFilter>& filters);
// Of DoGet for a search.
std::string search_ticket(const std::string& dataset, const SearchRequest& request);
// The body of the action VectorSearch.
std::string search_body(const std::string& dataset, const SearchRequest& request);
// {"dataset": …}, and {"dataset": …, "id": …}.
std::string dataset_body(const std::string& dataset);
std::string row_body(const std::string& dataset, const std::string& id);
// The criteria of ListFlights: names that have `contains` in them.
std::string name_criteria(const std::string& contains);

// Nothing where the answer is none that the store gives.
std::optional<Readiness> read_readiness(std::string_view json);
// Whether a message of a stream asks for a pause before the next one.
bool asks_to_slow_down(std::string_view json);
// Rows that a message of a streaming ingest acknowledges; nothing where it is no acknowledgement.
std::optional<std::uint64_t> acknowledged_rows(std::string_view json);

// Throws Error(bad_input) for a filter whose field is not there, cannot be compared, or whose value is none of its
// type: the store would leave rows out without a word.
void check_filters(const std::vector<RowFilter>& filters, const StoredSchema& schema, const std::string& dataset);

}  // namespace quarrel
