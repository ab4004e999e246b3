#include "server/http/tls.h"

#include <openssl/err.h>

#include <boost/asio/ssl/context.hpp>

#include "base/error.h"

namespace quarrel::http {
namespace {

namespace ssl = boost::asio::ssl;

// Asio's own messages leave out which file it was.
[[noreturn]] void refuse(const std::string& path, const char* what) {
  const unsigned long code = ::ERR_peek_last_error();
  const char* reason = ::ERR_reason_error_string(code);
  ::ERR_clear_error();
  fail(ErrorKind::usage, "{} cannot be used as the server's {}: {}", path, what,
       reason != nullptr ? reason : "it cannot be read");
}

// Without this, OpenSSL would ask for a password on the terminal.
int no_password(char*, int, int, void*) { return 0; }

}  // namespace

std::shared_ptr<ssl::context> load_tls(const TlsFiles& files) {
  ::ERR_clear_error();
  auto context = std::make_shared<ssl::context>(ssl::context::tls_server);
  SSL_CTX* native = context->native_handle();
  ::SSL_CTX_set_min_proto_version(native, TLS1_2_VERSION);
  ::SSL_CTX_set_options(native, SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION | SSL_OP_CIPHER_SERVER_PREFERENCE);
  // An idle connection keeps no buffers for records.
  ::SSL_CTX_set_mode(native, SSL_MODE_RELEASE_BUFFERS);
  ::SSL_CTX_set_default_passwd_cb(native, no_password);
  if (::SSL_CTX_use_certificate_chain_file(native, files.certificate.c_str()) != 1) {
    refuse(files.certificate, "certificate");
  }
  if (::SSL_CTX_use_PrivateKey_file(native, files.key.c_str(), SSL_FILETYPE_PEM) != 1) refuse(files.key, "key");
  if (::SSL_CTX_check_private_key(native) != 1) refuse(files.key, "key");
  return context;
}

}  // namespace quarrel::http
