// Searches a dataset by a vector and brings what is stored with the hits: the store's search tells ids and scores
// alone. Called by `quarrel search`, the server and what puts texts before a prompt; any thread, blocks.
#pragma once

#include <cstdint>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "flight/longbow.h"

namespace quarrel {

enum class TextState {
  found,
  gone,         // the store no longer has the row that it found
  unreachable,  // rows of this dataset cannot be looked up by their ids: they are of a type that the store cannot
                // compare
};

struct FoundText {
  std::uint64_t id = 0;
  float score = 0;  // higher is nearer
  TextState state = TextState::gone;
  // Empty unless it was found.
  std::string text = {};
  std::string doc_id = {};
  std::string source = {};
  std::string metadata = {};                                      // JSON as it was stored
  std::vector<std::pair<std::string, std::string>> columns = {};  // others that the dataset has
};

// The nearest first. Throws what LongbowClient::search and scan throw.
std::vector<FoundText> find_texts(LongbowClient& client, const std::string& dataset, const SearchRequest& request,
                                  const std::stop_token& stop = {});

}  // namespace quarrel
