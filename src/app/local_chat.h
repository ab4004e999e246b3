// A chat with a model that is loaded here. One thread.
#pragma once

#include <memory>

#include "app/chat_session.h"
#include "base/log.h"
#include "session/ask.h"
#include "session/loaded_model.h"
#include "store/store.h"

namespace quarrel {

class LocalChat final : public ChatSession {
 public:
  // Throws Error: what opening and loading throw, unsupported for a model without a head, bad_input for a template.
  LocalChat(const ResolvedModel& model, const ChatOptions& options, std::shared_ptr<Device> device, Log& log);

  Reply answer(const Conversation& conversation, const ChatParameters& parameters, const ReplySink& sink,
               std::size_t first = 0) override;
  Reply complete(std::string_view text, const ChatParameters& parameters, const ReplySink& sink) override;
  std::string full_context() const override;
  std::string template_source() override;

 private:
  std::size_t prompt_tokens(const Conversation& conversation, std::size_t first) override;
  Reply reply_to(Ask ask, const ChatParameters& parameters, const ReplySink& sink);

  std::shared_ptr<LoadedModel> model_;
  ModelOptions options_;
};

}  // namespace quarrel
