// A chat with a model that is loaded here. One thread.
#pragma once

#include <memory>

#include "app/chat_session.h"
#include "backend/backend.h"
#include "base/log.h"
#include "store/store.h"

namespace quarrel {

// Throws Error: what opening and loading throw, unsupported for a model without a head, bad_input for a template.
std::unique_ptr<ChatSession> load_chat(const ResolvedModel& model, const ChatOptions& options,
                                       std::shared_ptr<Device> device, Log& log);

}  // namespace quarrel
