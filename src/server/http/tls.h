// A server's certificate and key, from files. Read once a start and once a reload, by whoever makes or reloads the
// server.
#pragma once

#include <memory>
#include <string>

namespace boost::asio::ssl {
class context;
}

namespace quarrel::http {

struct TlsFiles {
  std::string certificate = {};  // PEM: the server's own, then those that lead to a known one; empty: no TLS
  std::string key = {};          // PEM, without a password
};

// TLS 1.2 and 1.3. Throws Error(usage) that names the file: it cannot be read, or is none, or the two do not belong
// together.
std::shared_ptr<boost::asio::ssl::context> load_tls(const TlsFiles& files);

}  // namespace quarrel::http
