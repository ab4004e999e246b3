#include "server/api_error.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "session/refusal.h"

namespace quarrel {
namespace {

using nlohmann::ordered_json;

constexpr const char* kInvalid = "invalid_request_error";
constexpr const char* kTooLong = "context_length_exceeded";

// A file's fault is told with its path, which is nothing for clients.
ApiError model_failed() {
  return {500, "server_error", "model_failed", "the model cannot be used; the server's log says why"};
}

ApiError from(const Error& error) {
  switch (error.kind()) {
    case ErrorKind::usage:
    case ErrorKind::bad_input: {
      const bool too_long = dynamic_cast<const TooLongError*>(&error) != nullptr;
      return {400, kInvalid, too_long ? kTooLong : "", error.what()};
    }
    case ErrorKind::unsupported: return {400, kInvalid, "unsupported", error.what()};
    case ErrorKind::not_found:
      return {404, "not_found_error", "model_not_found", "the model is not there; GET /v1/models lists those that are"};
    case ErrorKind::busy: {
      if (dynamic_cast<const TimedOutError*>(&error) != nullptr) {
        return {503, "unavailable_error", "timeout", error.what()};
      }
      ApiError busy(503, "unavailable_error", "queue_full", error.what());
      if (const auto* with_time = dynamic_cast<const BusyError*>(&error)) busy.retry_after = with_time->retry_after();
      return busy;
    }
    case ErrorKind::out_of_memory: return {503, "unavailable_error", "out_of_memory", error.what()};
    case ErrorKind::cancelled: return {503, "unavailable_error", "cancelled", error.what()};
    case ErrorKind::device_lost: return {503, "unavailable_error", "device_lost", error.what()};
    case ErrorKind::bad_file: return model_failed();
    case ErrorKind::io:
    case ErrorKind::internal: break;
  }
  return {500, "server_error", "", "something went wrong in the server; its log says what"};
}

http::Response with_retry(http::Response response, const ApiError& error) {
  if (error.status == 429 || error.status == 503) {
    const auto seconds = std::chrono::ceil<std::chrono::seconds>(error.retry_after).count();
    response.headers.emplace_back("Retry-After", fmt::format("{}", std::max<std::int64_t>(1, seconds)));
  }
  if (error.status == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
  return response;
}

}  // namespace

ApiError invalid_field(const std::string& field, const std::string& message) {
  return {400, kInvalid, "invalid_value", message, field};
}

ApiError unsupported_field(const std::string& field, const std::string& message) {
  return {400, kInvalid, "unsupported_parameter", message, field};
}

ApiError too_long_field(const std::string& field, const std::string& message) {
  return {400, kInvalid, kTooLong, message, field};
}

ApiError invalid_request(const std::string& code, const std::string& message) { return {400, kInvalid, code, message}; }

ApiError api_error(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const ApiError& known) {
    return known;
  } catch (const Error& ours) {
    return from(ours);
  } catch (const std::bad_alloc&) {
    return {503, "unavailable_error", "out_of_memory", "there is no memory for this request now"};
  } catch (...) {
    return from(Error(ErrorKind::internal, ""));
  }
}

ApiError about_field(ApiError error, const std::string& field) {
  const bool of_a_field = error.code.empty() || error.code == kTooLong;
  if (error.status != 400 || !of_a_field || !error.param.empty()) return error;
  error.param = field;
  if (error.code.empty()) error.code = "invalid_value";
  return error;
}

ApiError as_draining(ApiError error) {
  // An engine that drains takes no more requests, which elsewhere means that its queue is full.
  if (error.code != "cancelled" && error.code != "queue_full") return error;
  return {503, "unavailable_error", "draining", "the server is about to end"};
}

ApiError load_error(const std::exception_ptr& error) {
  ApiError said = api_error(error);
  return said.status == 404 || said.status == 503 ? said : model_failed();
}

void log_fault(Log& log, const std::string& request_id, const ApiError& said,
               const std::exception_ptr& error) noexcept {
  if (said.status != 500) return;
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& detail) {
    log.try_warn("request {} failed: {}", request_id, detail.what());
  } catch (...) {
    log.try_warn("request {} failed", request_id);
  }
}

std::string openai_error_body(const ApiError& error) {
  ordered_json body;
  body["message"] = error.what();
  body["type"] = error.type;
  body["param"] = error.param.empty() ? ordered_json() : ordered_json(error.param);
  body["code"] = error.code.empty() ? ordered_json() : ordered_json(error.code);
  return ordered_json{{"error", body}}.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

http::Response openai_error(const ApiError& error) {
  return with_retry({.status = error.status, .body = openai_error_body(error)}, error);
}

std::string plain_error_body(const ApiError& error) {
  ordered_json body{{"error", error.what()}};
  if (!error.code.empty()) body["code"] = error.code;
  return body.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

http::Response plain_error(const ApiError& error) {
  return with_retry({.status = error.status, .body = plain_error_body(error)}, error);
}

}  // namespace quarrel
