// An answer's timings for people. Used by `run`. Pure.
#pragma once

#include <string>

#include "app/chat_session.h"

namespace quarrel {

// Ollama's lines, which people compare; `total_seconds` is the answer's, `load_seconds` the model's.
std::string timing_text(const Reply& reply, double total_seconds, double load_seconds);

}  // namespace quarrel
