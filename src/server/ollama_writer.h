// Ollama's answers: generate and chat, whole or as lines of JSON. One object a request, called by its GenerationCall,
// one call at a time; the functions from any thread.
#pragma once

#include <memory>
#include <string>

#include "server/generation_call.h"
#include "server/ollama_request.h"

namespace quarrel {

enum class OllamaForm { generate, chat };

std::unique_ptr<AnswerWriter> make_ollama_writer(const std::shared_ptr<http::Exchange>& exchange, OllamaForm form,
                                                 const OllamaRequest& request);

// The answer to a request that asks nothing: the model was loaded, or is being unloaded.
std::string ollama_idle_answer(OllamaForm form, const std::string& model, std::string_view reason);

}  // namespace quarrel
