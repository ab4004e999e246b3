#include "app/conversation.h"

#include <algorithm>

#include "app/input.h"
#include "base/error.h"
#include "base/output_file.h"
#include "base/printable.h"

namespace quarrel {
namespace {

constexpr std::size_t kFileLimit = 64u << 20;
constexpr const char* kFormat = "quarrel-conversation";

[[noreturn]] void refuse(const std::filesystem::path& path, std::string_view why) {
  fail(ErrorKind::bad_input, "'{}' is not a saved conversation: {}", printable(path.string()), why);
}

std::string text_of(const nlohmann::ordered_json& object, const char* key, const std::filesystem::path& path) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_string()) refuse(path, fmt::format("a message has no text '{}'", key));
  return found->get<std::string>();
}

}  // namespace

nlohmann::ordered_json Conversation::to_template(std::size_t first) const {
  auto list = nlohmann::ordered_json::array();
  if (!system.empty()) list.push_back({{"role", "system"}, {"content", system}});
  for (std::size_t i = first; i < messages.size(); ++i) {
    list.push_back({{"role", messages[i].role}, {"content", messages[i].content}});
  }
  return list;
}

std::vector<std::size_t> turn_starts(const Conversation& conversation) {
  std::vector<std::size_t> starts;
  for (std::size_t i = 0; i < conversation.messages.size(); ++i) {
    if (conversation.messages[i].role == "user") starts.push_back(i);
  }
  return starts;
}

std::optional<std::size_t> first_sent(const Conversation& conversation, std::size_t first, const ContextLimits& limits,
                                      const std::function<std::size_t(std::size_t)>& tokens_from) {
  if (tokens_from(first) <= limits.roomy) return first;
  std::vector<std::size_t> starts = turn_starts(conversation);
  std::erase_if(starts, [&](std::size_t start) { return start <= first; });
  starts.insert(starts.begin(), first);
  for (const std::size_t limit : {limits.comfortable, limits.roomy, limits.most}) {
    const auto found =
        std::ranges::partition_point(starts, [&](std::size_t start) { return tokens_from(start) > limit; });
    if (found != starts.end()) return *found;
  }
  return std::nullopt;
}

void save_conversation(const Conversation& conversation, const std::filesystem::path& path) {
  std::error_code fault;
  if (std::filesystem::is_regular_file(path, fault)) {
    try {
      load_conversation(path);
    } catch (const Error&) {
      fail(ErrorKind::bad_input, "'{}' exists and is not a saved conversation; it is left as it is",
           printable(path.string()));
    }
  }
  nlohmann::ordered_json value{{"format", kFormat}, {"version", 1}, {"system", conversation.system}};
  value["messages"] = Conversation{.system = {}, .messages = conversation.messages}.to_template();
  const std::string text = dump_json(value) + "\n";
  OutputFile file(path);
  file.write(std::as_bytes(std::span(text)));
  file.commit();
}

Conversation load_conversation(const std::filesystem::path& path) {
  const nlohmann::ordered_json value =
      parse_json(read_input(path.string(), kFileLimit), fmt::format("'{}'", printable(path.string())));
  const auto format = value.is_object() ? value.find("format") : value.end();
  if (!value.is_object() || format == value.end() || *format != kFormat) {
    refuse(path, fmt::format("it is not marked as \"format\": \"{}\"", kFormat));
  }
  if (const auto version = value.find("version"); version == value.end() || *version != 1) {
    refuse(path, "its version is not 1");
  }
  Conversation result;
  if (value.contains("system")) result.system = text_of(value, "system", path);
  const auto messages = value.find("messages");
  if (messages == value.end() || !messages->is_array()) refuse(path, "it has no list of messages");
  for (const auto& message : *messages) {
    if (!message.is_object()) refuse(path, "a message is not an object");
    ChatMessage next{.role = text_of(message, "role", path), .content = text_of(message, "content", path)};
    if (next.role != "user" && next.role != "assistant") {
      refuse(path, fmt::format("it has a message of the role '{}'", printable(next.role)));
    }
    result.messages.push_back(std::move(next));
  }
  return result;
}

}  // namespace quarrel
