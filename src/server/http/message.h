// A request and an answer as HTTP has them, without sockets: what handlers see. Plain values.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
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

// Calls `take` with each member of a list with commas, which may go on over several headers of one name.
template <typename Take>
void for_each_token(const Request& request, std::string_view name, const Take& take) {
  constexpr std::string_view kBlank = " \t";
  for (const auto& [header, values] : request.headers) {
    if (!equals_ignoring_case(header, name)) continue;
    for (std::size_t begin = 0; begin < values.size();) {
      const std::size_t end = std::min(values.find(',', begin), values.size());
      const std::string_view token = std::string_view(values).substr(begin, end - begin);
      const std::size_t first = token.find_first_not_of(kBlank);
      if (first != std::string_view::npos) take(token.substr(first, token.find_last_not_of(kBlank) - first + 1));
      begin = end + 1;
    }
  }
}

struct Response {
  unsigned status = 200;
  std::string content_type = "application/json";
  Headers headers = {};
  std::string body = {};
};

// Of an answer in pieces, which nobody between here and the client is to gather.
Response stream_head(std::string content_type);

std::string_view status_text(unsigned status) noexcept;

// "Sun, 06 Nov 1994 08:49:37 GMT", as the header Date has it.
std::string http_date(std::chrono::sys_seconds time);

// "%41" becomes "A", once; what is no such code stays as it is.
std::string percent_decoded(std::string_view text);

// The path of a request's target: decoded once, "." and ".." refused, doubled slashes refused, no control characters.
// False if it is none.
bool read_path(std::string_view target, std::string& path, std::string& query);

// A request's head as its bytes come, each looked at once. Lines end with CR LF and nothing else, no line continues
// another or is longer than 8 KiB, there are no control characters, and 100 headers at most: what all readers
// understand alike.
class HeadScan {
 public:
  explicit HeadScan(std::size_t most_bytes) : most_bytes_(most_bytes) {}

  // `seen` is all that has come so far, and begins with what was looked at before.
  void look(std::string_view seen);

  // Of the whole head with the empty line that ends it; 0: that has not come yet.
  std::size_t length() const noexcept { return length_; }
  // 400 or 431; 0: nothing is wrong so far.
  unsigned status() const noexcept { return status_; }
  const std::string& fault() const noexcept { return fault_; }

 private:
  void look_at(std::string_view seen);
  void refuse(unsigned status, std::string fault);

  const std::size_t most_bytes_;
  std::size_t place_ = 0;       // what is before it has been looked at
  std::size_t line_begin_ = 0;  // of the line that it is in
  std::size_t lines_ = 0;
  std::size_t length_ = 0;
  unsigned status_ = 0;
  std::string fault_;
};

// True for what may be handed back to a client and written to a log: 1 to 128 letters, digits, '-', '_', '.' or ':'.
bool usable_request_id(std::string_view id) noexcept;
// For a request that came without one.
std::string new_request_id();

}  // namespace quarrel::http
