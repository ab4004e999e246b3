#include "ingest/found_json.h"

#include "base/json_depth.h"

namespace quarrel {
namespace {

constexpr int kDeepestMetadata = 64;

nlohmann::ordered_json metadata_json(const std::string& text) {
  if (nests_deeper(text, kDeepestMetadata)) return text;
  nlohmann::ordered_json read = nlohmann::ordered_json::parse(text, nullptr, false);
  return read.is_discarded() ? nlohmann::ordered_json(text) : read;
}

}  // namespace

nlohmann::ordered_json found_json(const FoundText& found) {
  nlohmann::ordered_json object{{"score", found.score}, {"id", found.id}};
  if (found.state != TextState::found) return object;
  object["text"] = found.text;
  if (!found.doc_id.empty()) object["doc_id"] = found.doc_id;
  if (!found.source.empty()) object["source"] = found.source;
  if (!found.metadata.empty()) object["metadata"] = metadata_json(found.metadata);
  for (const auto& [name, value] : found.columns) {
    if (!object.contains(name)) object[name] = value;
  }
  return object;
}

}  // namespace quarrel
