// A chat with a model that a running server holds, in place of loading it a second time: what `run` does where it may.
// Only over a Unix socket of the same user. Each call is a connection of its own, since a server ends those that are
// idle. One thread.
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

// The server at the address's Unix socket, if it holds the very file that is meant. Null: there is no server, or it
// does not. Throws Error(usage) for a socket that is not this user's, io for a server that breaks off.
//
// Its answers throw ChatLostError where the server is gone or does not take the request, and nothing was shown;
// Error(io) where an answer breaks off.
std::unique_ptr<ChatSession> find_served_chat(const ServerAddress& address, const ResolvedModel& model, Log& log);

}  // namespace quarrel
