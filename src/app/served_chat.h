// Answers by a server that runs already and holds the model, in place of loading it a second time: what `run` does
// where it may. Only over a Unix socket of the same user. Each call is a connection of its own, since a server ends
// those that are idle. One thread.
#pragma once

#include <memory>
#include <string>

#include "app/chat_session.h"
#include "app/server_client.h"
#include "base/log.h"
#include "store/store.h"

namespace quarrel {

// Why a server cannot be asked for this, in words; empty: it can. What only the process that has the model can give
// (ids of tokens, a template or a machine of one's own) is not asked of a server.
std::string reason_for_own_model(const ChatOptions& options, const ChatParameters& parameters);

class ServedChat final : public ChatSession {
 public:
  // The server at the address's Unix socket, if it holds the very file that is meant. Null: there is no server, or it
  // does not. Throws Error(usage) for a socket that is not this user's, io for a server that breaks off.
  static std::unique_ptr<ServedChat> find(const ServerAddress& address, const ResolvedModel& model, Log& log);

  // ChatLostError where the server is gone or does not take the request, and nothing was shown; Error(io) where an
  // answer breaks off.
  Reply answer(const Conversation& conversation, const ChatParameters& parameters, const ReplySink& sink,
               std::size_t first = 0) override;
  Reply complete(std::string_view text, const ChatParameters& parameters, const ReplySink& sink) override;
  std::string full_context() const override;
  std::string template_source() override;

 private:
  ServedChat(ServerAddress address, const ResolvedModel& model, std::string name, std::int64_t context, Log& log);
  std::size_t prompt_tokens(const Conversation& conversation, std::size_t first) override;
  std::unique_ptr<ServerClient> connect() const;
  // A call whose answer is JSON.
  nlohmann::ordered_json call(const char* path, const nlohmann::ordered_json& body) const;

  const ServerAddress address_;
  const std::string name_;         // that the server has for it
  const bool has_system_ = false;  // the store keeps a system prompt with it
};

}  // namespace quarrel
