// Bodies of the routes that reach a vector store: texts to be stored, and questions. Any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "flight/longbow.h"
#include "ingest/text_source.h"
#include "server/fields.h"

namespace quarrel {

struct EmbedToRequest {
  std::string model = {};
  std::string to = {};
  std::vector<TextRecord> texts = {};
  std::string source = {};
  std::string prefix = {};
  std::vector<std::string> columns = {};
  std::optional<std::int32_t> dimensions = {};
  bool truncate = true;
  bool append = false;
};

struct StoreSearchRequest {
  std::string model = {};
  std::string from = {};
  std::string query = {};
  std::int32_t k = 10;
  std::vector<RowFilter> filters = {};
  std::string prefix = {};
  std::optional<std::int32_t> dimensions = {};
};

// Of a chat whose question is asked with texts of a store.
struct RetrievalRequest {
  StoreSearchRequest search = {.k = 4};  // its query: the question
  std::size_t max_tokens = 1024;         // of the model that is asked, for all texts
  std::string prompt_template = {};      // empty: ours
};

// Throw ApiError that names the field.
EmbedToRequest read_embed_to(const Json& body);
StoreSearchRequest read_store_search(const Json& body);
RetrievalRequest read_retrieval(const Json& value);  // the field `retrieval` of a question

// What they take.
Json embed_to_schema();
Json store_search_schema();
Json retrieval_schema();

}  // namespace quarrel
