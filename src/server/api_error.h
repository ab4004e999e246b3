// Why a request is refused, in words and numbers that every dialect can say: made where the fault is found, or from an
// Error by the one function that maps kinds to statuses. Any thread.
#pragma once

#include <chrono>
#include <exception>
#include <stdexcept>
#include <string>

#include "base/log.h"
#include "server/http/message.h"

namespace quarrel {

struct ApiError : std::runtime_error {
  ApiError(unsigned status_, std::string type_, std::string code_, const std::string& message, std::string param_ = {})
      : std::runtime_error(message),
        status(status_),
        type(std::move(type_)),
        code(std::move(code_)),
        param(std::move(param_)) {}

  unsigned status;
  std::string type;                            // OpenAI's: "invalid_request_error" …
  std::string code;                            // "model_not_found" …; empty: none
  std::string param;                           // the field it is about; empty: none
  std::chrono::microseconds retry_after = {};  // 0: nobody knows; only of 429 and 503
};

// A field that cannot be what it is, or that is not understood.
ApiError invalid_field(const std::string& field, const std::string& message);
ApiError unsupported_field(const std::string& field, const std::string& message);
// One whose text is longer than the model's context.
ApiError too_long_field(const std::string& field, const std::string& message);
ApiError invalid_request(const std::string& code, const std::string& message);

// What was thrown, as a client may see it: no paths, no addresses, nothing of our own mistakes but that there was one.
ApiError api_error(const std::exception_ptr& error);

// The same for a model that could not be had: what is wrong with its file is the server's matter, not the request's.
ApiError load_error(const std::exception_ptr& error);
// What is wrong with a request and names no field is about this one.
ApiError about_field(ApiError error, const std::string& field);
// What the server cancels because it is about to end is told so, as those are who come then, whoever cancelled it.
ApiError as_draining(ApiError error);

// Writes down what the client is not told, where there is memory for that.
void log_fault(Log& log, const std::string& request_id, const ApiError& said, const std::exception_ptr& error) noexcept;

// {"error":{"message","type","param","code"}}, with Retry-After where it is known.
http::Response openai_error(const ApiError& error);
// {"error":"message","code"}: what Ollama's clients and ours read; the code is for programs, where there is one.
http::Response plain_error(const ApiError& error);
std::string plain_error_body(const ApiError& error);
std::string openai_error_body(const ApiError& error);

}  // namespace quarrel
