// One line a request, at its end: who asked for what, how it went, how long each part took. Never what was asked or
// answered. An observer of records.
//
// Threads: any.
#pragma once

#include <memory>
#include <string>

#include "server/request_record.h"
#include "server/watch/server_log.h"

namespace quarrel {

// The members of a JSON object, and the same for people.
std::string request_json(const RequestFacts& facts);
std::string request_text(const RequestFacts& facts);

class RequestLog final : public RequestObserver {
 public:
  explicit RequestLog(std::shared_ptr<ServerLog> log) : log_(std::move(log)) {}

  void ended(const RequestFacts& facts) override;

 private:
  const std::shared_ptr<ServerLog> log_;
};

}  // namespace quarrel
