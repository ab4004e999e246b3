#include "server/health_api.h"

#include <fmt/format.h>

#include <utility>

#include "base/utc_time.h"
#include "server/json_body.h"
#include "server/key_record.h"

namespace quarrel {
namespace {

using http::Exchange;

// A server that is ill may be well again in a moment; whoever started it decides how long that is.
void respond(Exchange& exchange, bool well, const Json& body) {
  http::Response answer{.body = body.dump()};
  if (!well) {
    answer.status = 503;
    answer.headers.emplace_back("Retry-After", "5");
  }
  exchange.respond(std::move(answer));
}

Json check(bool well, const char* otherwise) { return {{"status", well ? "ok" : otherwise}}; }

}  // namespace

std::string uptime_text(std::chrono::seconds time) {
  std::string text;
  const auto add = [&](std::int64_t count, char unit) {
    if (count != 0) text += fmt::format("{}{}{}", text.empty() ? "" : " ", count, unit);
  };
  const std::int64_t seconds = time.count();
  add(seconds / 86400, 'd');
  add(seconds / 3600 % 24, 'h');
  add(seconds / 60 % 60, 'm');
  add(seconds % 60, 's');
  return text.empty() ? "0s" : text;
}

void health(Service& service, const std::shared_ptr<Exchange>& exchange) {
  const bool moving = !service.stuck();
  const bool device = !service.device_lost();
  const bool well = moving && device;
  respond(*exchange, well,
          {{"status", well      ? "ok"
                      : !device ? "device_lost"
                                : "stuck"},
           {"version", service.program().version},
           {"uptime", uptime_text(std::chrono::floor<std::chrono::seconds>(service.uptime()))},
           {"timestamp", rfc3339(std::chrono::system_clock::now(), 3)},
           {"checks",
            {{"server", check(true, "")}, {"engine", check(moving, "stuck")}, {"device", check(device, "lost")}}}});
}

void readiness(Service& service, const std::shared_ptr<Exchange>& exchange) {
  const char* status = service.device_lost() ? "device_lost"
                       : service.stuck()     ? "stuck"
                       : service.ready()     ? "ready"
                                             : "draining";
  respond(*exchange, service.ready() && !service.stuck(), {{"status", status}});
}

void version(Service& service, const std::shared_ptr<Exchange>& exchange) {
  const ProgramFacts& program = service.program();
  exchange->respond({.body = Json{{"version", program.version},
                                  {"commit", program.commit},
                                  {"build", program.build},
                                  {"backends", program.backends},
                                  {"role", role_name(caller_of(*exchange)->role)}}
                                 .dump()});
}

}  // namespace quarrel
