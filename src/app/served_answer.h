// One answer by a server that runs already and holds the model, in place of loading it a second time: what `run` does
// where it may. Only over a Unix socket of the same user. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "app/chat_session.h"
#include "app/conversation.h"
#include "app/server_client.h"
#include "base/log.h"
#include "store/store.h"

namespace quarrel {

// Why a server cannot be asked for this, in words; empty: it can. What only the process that has the model can give
// (ids of tokens, a template or a machine of one's own) is not asked of a server.
std::string reason_for_own_model(const ChatOptions& options, const ChatParameters& parameters);

class ServedModel {
 public:
  // The server at the address's Unix socket, if it holds the very file that is meant. None: there is no server, or it
  // does not. Throws Error(usage) for a socket that is not this user's, io for a server that breaks off.
  static std::optional<ServedModel> find(const ServerAddress& address, const ResolvedModel& model);

  // As ChatSession makes them: the defaults, what comes with the model, what the user has given.
  ChatParameters parameters(const GivenParameters& given, Log& log) const;
  // None: the server does not take the request, and `log` hears why; nothing was shown. Throws Error(io) where an
  // answer breaks off.
  std::optional<Reply> answer(const Conversation& conversation, const ChatParameters& parameters, const ReplySink& sink,
                              Log& log);

  std::int64_t context() const noexcept { return context_; }

 private:
  ServedModel(std::unique_ptr<ServerClient> client, ResolvedModel model, std::string name, std::int64_t context)
      : client_(std::move(client)), model_(std::move(model)), name_(std::move(name)), context_(context) {}

  std::unique_ptr<ServerClient> client_;
  ResolvedModel model_;
  std::string name_;  // that the server has for it
  std::int64_t context_;
};

}  // namespace quarrel
