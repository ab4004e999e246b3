// A question in Quarrel's own form: the body of /api/generate and /api/stream, and the payload of a WebSocket's
// `inference` message. One table reads all three. Any thread.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "server/fields.h"
#include "server/longbow_request.h"
#include "server/resume_point.h"
#include "session/ask.h"
#include "session/loaded_model.h"
#include "session/recommended_sampling.h"

namespace quarrel {

struct NativeRequest {
  std::string model = {};  // empty: the default
  std::string prompt = {};
  Json messages = nullptr;
  RecommendedSampling options = {};  // comes in place of what the model's makers recommend
  std::vector<std::pair<TokenId, float>> logit_bias = {};
  std::optional<bool> stream = {};  // none: as the endpoint has it
  bool resume = false;              // the answer may outlive its connection
  bool go_on = false;               // the last message is the beginning of the answer
  bool progress = false;            // news of how much of the prompt is read
  std::optional<RetrievalRequest> retrieval = {};
  std::optional<ResumePoint> reattach = {};  // nothing is asked: the rest of such an answer is wanted
};

// What such a body may hold, for the documentation.
Json native_request_schema();

// Throws ApiError that names the field at fault.
NativeRequest read_native_request(const Json& body);

// A prompt is a question to a model that can chat, and a text to continue for one that cannot, as `quarrel run` has it.
Ask ask_of(const NativeRequest& request, const LoadedModel& model);

}  // namespace quarrel
