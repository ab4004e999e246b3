// A request and an answer as HTTP has them, without sockets: what handlers see. Plain values.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace quarrel {
class RequestRecord;
}

namespace quarrel::http {

using Headers = std::vector<std::pair<std::string, std::string>>;

// ASCII letters of either case are alike, as in the names of headers.
bool equals_ignoring_case(std::string_view a, std::string_view b) noexcept;

struct Request {
  std::string method = {};
  std::string path = {};   // decoded and normalised: routes and rights are decided by this alone
  std::string query = {};  // as it came, without the '?'
  Headers headers = {};
  std::string body = {};
  std::string id = {};                         // the client's x-request-id, or one made for it
  std::string address = {};                    // of the client; empty on a Unix socket
  bool loopback = false;                       // it comes from this machine
  bool unix_socket = false;                    // and by the Unix socket
  std::shared_ptr<RequestRecord> record = {};  // what admission hung on it; nothing to HTTP itself

  // The first of that name; empty if there is none.
  std::string_view header(std::string_view name) const noexcept;
};

struct Response {
  unsigned status = 200;
  std::string content_type = "application/json";
  Headers headers = {};
  std::string body = {};
};

// Of an answer in pieces, which nobody between here and the client is to gather.
Response stream_head(std::string content_type);

std::string_view status_text(unsigned status) noexcept;

// The path of a request's target: decoded once, "." and ".." refused, doubled slashes refused, no control characters.
// False if it is none.
bool read_path(std::string_view target, std::string& path, std::string& query);

// Why a head's bytes, as many as have come, cannot be those of a request that all readers understand alike; empty: they
// can. Lines end with CR LF and nothing else, no line continues another, no control characters, 100 headers at most.
std::string head_fault(std::string_view head);

// True for what may be handed back to a client and written to a log: 1 to 128 letters, digits, '-', '_', '.' or ':'.
bool usable_request_id(std::string_view id) noexcept;

}  // namespace quarrel::http
