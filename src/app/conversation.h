// What was said so far, and how it lies in a file. Plain values, one thread.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace quarrel {

struct ChatMessage {
  std::string role;  // "user" or "assistant"
  std::string content;
};

struct Conversation {
  std::string system;  // empty: none
  std::vector<ChatMessage> messages;

  // The list that templates are given: the system prompt, then the messages.
  nlohmann::ordered_json to_template() const;
};

// Writes a JSON file, whole or not at all. A file that is there and is no conversation is left alone. Throws Error: io,
// bad_input.
void save_conversation(const Conversation& conversation, const std::filesystem::path& path);

// Throws Error: not_found, io, bad_input with what is wrong in the file.
Conversation load_conversation(const std::filesystem::path& path);

}  // namespace quarrel
