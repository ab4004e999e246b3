// Texts of a vector store for the questions of a chat in the terminal (`quarrel run --context`): each question is
// searched for, and asked with what was found. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "app/chat_session.h"
#include "app/conversation.h"
#include "app/longbow_flags.h"
#include "app/terminal.h"
#include "base/log.h"
#include "flight/longbow.h"
#include "ingest/model_embedder.h"
#include "ingest/prompt_context.h"

namespace CLI {
class App;
}

namespace quarrel {

struct ContextFlags {
  std::string address = {};  // empty: questions are asked as they are
  std::string model = "minilm";
  std::string prefix = {};
  std::optional<std::int32_t> dimensions = {};
  std::int32_t k = 4;
  std::int32_t max_tokens = 1024;
  std::vector<std::string> filters = {};
  std::string template_file = {};
  LongbowFlags longbow = {};
};

void add_context_flags(CLI::App& command, ContextFlags& flags);

class ChatContext {
 public:
  // Loads the model that makes vectors. Throws Error: for a store or a dataset that is not there, a template or filters
  // that mean nothing, and what loading throws.
  ChatContext(const ContextFlags& flags, Log& log);

  // The conversation with texts before its last message, the user's, within the tokens that there are for them. Throws
  // what a search throws, ChatLostError, and Error(cancelled) soon after Ctrl-C.
  Conversation asked(const Conversation& conversation, ChatSession& session, const Interrupts& interrupts);

  // Of the last question: "Sources: [1] a.md (17), [2] 23", and the same for programs.
  std::string sources_text() const;
  nlohmann::ordered_json sources_json() const;

 private:
  const LongbowAddress address_;
  ContextOptions options_;
  SearchRequest request_;
  std::unique_ptr<LongbowClient> client_;
  std::unique_ptr<ModelEmbedder> embedder_;
  std::vector<UsedText> sources_;
};

}  // namespace quarrel
