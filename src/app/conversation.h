// What was said so far, and how it lies in a file. Plain values, one thread.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <optional>
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

  // The list that templates are given: the system prompt, then the messages from the one numbered `first`.
  nlohmann::ordered_json to_template(std::size_t first = 0) const;
};

// Where turns begin among the messages: at each of the user's.
std::vector<std::size_t> turn_starts(const Conversation& conversation);

// How full a context may be, from the best to the most that can be borne.
struct ContextLimits {
  std::size_t comfortable = 0;  // leaves room for some turns more, so that not every one drops another
  std::size_t roomy = 0;        // leaves room for an answer
  std::size_t most = 0;         // leaves room for a token
};

// The message from which on a conversation is sent, `first` or a later turn's start: while the tokens of the whole
// leave room for an answer it stays where it is; otherwise the oldest turns are dropped, as many as it takes to be
// comfortable, or the fewest that will do. The last turn always stays; none: it alone is too much. `tokens_from(i)`
// counts the prompt without the messages before i, and is smaller for later ones.
std::optional<std::size_t> first_sent(const Conversation& conversation, std::size_t first, const ContextLimits& limits,
                                      const std::function<std::size_t(std::size_t)>& tokens_from);

// Writes a JSON file, whole or not at all. A file that is there and is no conversation is left alone. Throws Error: io,
// bad_input.
void save_conversation(const Conversation& conversation, const std::filesystem::path& path);

// Throws Error: not_found, io, bad_input with what is wrong in the file.
Conversation load_conversation(const std::filesystem::path& path);

}  // namespace quarrel
