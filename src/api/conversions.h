// Values of the public headers as the layers below have them, and back. Pure functions.
#pragma once

#include <chrono>

#include "quarrel/quarrel.h"
#include "session/ask.h"
#include "session/embedding.h"
#include "session/loaded_model.h"

namespace quarrel::api {

FinishReason reason_of(quarrel::FinishReason reason) noexcept;
Pooling pooling_of(quarrel::Pooling pooling) noexcept;
// The same, as an option of somebody's who may have made it of any number.
quarrel::Pooling inner(Pooling pooling);
quarrel::Priority inner(Priority priority);

// Longer ones are as good as none.
std::chrono::microseconds microseconds_of(std::chrono::milliseconds time) noexcept;

// Throws Error(bad_input) for JSON that is none, or not of the kind that is wanted.
ChatInput chat_input_of(const Chat& chat);
Ask ask_of(const Prompt& prompt, const GenerateOptions& options);
EmbeddingOptions embedding_options_of(const EmbedOptions& options);

// Without callbacks and device. Throws Error(usage) for numbers that cannot be.
quarrel::LoadOptions load_options_of(const LoadOptions& options);

}  // namespace quarrel::api
