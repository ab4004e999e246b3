// OpenAI's answers: chat completions and completions, whole or as server-sent events. One object a request, called by
// its GenerationCall, one call at a time.
#pragma once

#include <memory>

#include "server/generation_call.h"
#include "server/openai_request.h"
#include "server/retrieval.h"

namespace quarrel {

enum class OpenAiForm { chat, completion };

struct AnswerNames {
  std::string model = {};        // as it was asked for
  std::string fingerprint = {};  // which program answers
};

// `retrieval`: whose sources the answer tells; null: it has none.
std::unique_ptr<AnswerWriter> make_openai_writer(const std::shared_ptr<http::Exchange>& exchange, OpenAiForm form,
                                                 const OpenAiRequest& request, const AnswerNames& names,
                                                 std::shared_ptr<const Retrieval> retrieval = {});

}  // namespace quarrel
