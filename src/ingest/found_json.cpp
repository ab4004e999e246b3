#include "ingest/found_json.h"

#include <set>
#include <string_view>
#include <utility>

#include "base/json_reader.h"

namespace quarrel {
namespace {

// As long as a line that such a text is stored from. What others have stored may be as large as a message.
constexpr std::size_t kLargestMetadata = std::size_t{8} << 20;

nlohmann::ordered_json metadata_json(const std::string& text) {
  if (text.size() > kLargestMetadata) return text;
  JsonReading read = read_json(text);
  return read.fault ? nlohmann::ordered_json(text) : std::move(read.value);
}

// A dataset has as many columns as it likes, and an object would compare each name with all that it has.
void add_columns(const FoundText& found, nlohmann::ordered_json& object) {
  auto& members = object.get_ref<nlohmann::ordered_json::object_t&>();
  members.reserve(members.size() + found.columns.size());  // its names stay where they are
  std::set<std::string_view> names;
  for (const auto& [name, value] : members) names.insert(name);
  for (const auto& [name, value] : found.columns) {
    if (names.insert(name).second) members.emplace_back(name, value);
  }
}

}  // namespace

nlohmann::ordered_json found_json(const FoundText& found) {
  nlohmann::ordered_json object{{"score", found.score}, {"id", found.id}};
  if (found.state != TextState::found) return object;
  object["text"] = found.text;
  if (!found.doc_id.empty()) object["doc_id"] = found.doc_id;
  if (!found.source.empty()) object["source"] = found.source;
  if (!found.metadata.empty()) object["metadata"] = metadata_json(found.metadata);
  add_columns(found, object);
  return object;
}

}  // namespace quarrel
