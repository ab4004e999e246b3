#include "server/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/beast/zlib/inflate_stream.hpp>
#include <cstdint>

#include "server/ollama_api.h"
#include "server/page_files.h"
#include "server/routes.h"

namespace quarrel {
namespace {

constexpr std::string_view kIndex = "index.html";

struct MediaType {
  std::string_view ending, type;
};
constexpr std::array kMediaTypes = {
    MediaType{".html", "text/html; charset=utf-8"},
    MediaType{".js", "text/javascript; charset=utf-8"},
    MediaType{".css", "text/css; charset=utf-8"},
    MediaType{".svg", "image/svg+xml"},
};

std::string_view media_type(std::string_view name) noexcept {
  const auto found =
      std::ranges::find_if(kMediaTypes, [&](const MediaType& one) { return name.ends_with(one.ending); });
  return found == kMediaTypes.end() ? "application/octet-stream" : found->type;
}

const files::EmbeddedFile* find_file(std::string_view name) noexcept {
  for (const files::EmbeddedFile& file : files::page_files()) {
    if (file.name.size() == name.size() + 3 && file.name.starts_with(name)) return &file;
  }
  return nullptr;
}

// FNV-1a: tells one build's page from another's; nobody gains by forging it.
std::string entity_tag(std::string_view bytes) {
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const char byte : bytes) hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3U;
  return fmt::format("\"{:016x}\"", hash);
}

// Who says nothing takes everything; a weight of zero is a no, which no browser says of gzip.
bool takes_gzip(const http::Request& request) noexcept {
  const std::string_view accepted = request.header("Accept-Encoding");
  return accepted.empty() || accepted.find("gzip") != std::string_view::npos;
}

// Of what web/scripts/pack.ts wrote: ten bytes of head without options, and at the end a checksum and the length.
std::string gunzip(std::string_view bytes) {
  constexpr std::size_t kHead = 10, kTail = 8;
  std::size_t length = 0;
  for (std::size_t i = 0; i < 4; ++i) {
    length |= static_cast<std::size_t>(static_cast<unsigned char>(bytes[bytes.size() - 4 + i])) << (8 * i);
  }
  std::string text(length, '\0');
  boost::beast::zlib::inflate_stream stream;
  boost::beast::zlib::z_params state;
  state.next_in = bytes.data() + kHead;
  state.avail_in = bytes.size() - kHead - kTail;
  state.next_out = text.data();
  state.avail_out = text.size();
  boost::beast::error_code error;
  stream.write(state, boost::beast::zlib::Flush::finish, error);
  text.resize(state.total_out);
  return text;
}

}  // namespace

http::Headers page_headers() {
  return {{"Content-Security-Policy",
           "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri "
           "'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types "
           "dompurify"},
          {"Referrer-Policy", "no-referrer"},
          {"X-DNS-Prefetch-Control", "off"},  // what a model writes as a link reaches nobody before it is followed
          {"Cross-Origin-Opener-Policy", "same-origin"}};
}

http::Response page_file(const http::Request& request, std::string_view name) {
  const files::EmbeddedFile* file = find_file(name);
  if (file == nullptr) throw ApiError(404, "not_found_error", "", "the page has no such file");
  const std::string tag = entity_tag(file->bytes);
  http::Response response{.content_type = std::string(media_type(name)), .headers = page_headers()};
  response.headers.emplace_back("Cache-Control", name == kIndex ? "no-cache" : "public, max-age=31536000, immutable");
  response.headers.emplace_back("Vary", "Accept, Accept-Encoding");
  response.headers.emplace_back("ETag", tag);
  if (request.header("If-None-Match").find(tag) != std::string_view::npos) {
    response.status = 304;
    response.content_type.clear();
    return response;
  }
  if (takes_gzip(request)) {
    response.headers.emplace_back("Content-Encoding", "gzip");
    response.body = std::string(file->bytes);
  } else {
    response.body = gunzip(file->bytes);
  }
  return response;
}

void page_root(Service& service, const std::shared_ptr<http::Exchange>& exchange) {
  const http::Request& request = exchange->request();
  const bool is_browser = request.header("Accept").find("text/html") != std::string_view::npos;
  if (request.method == "HEAD" || !is_browser) return ollama_root(service, exchange);
  exchange->respond(page_file(request, kIndex));
}

void page_view(Service&, const std::shared_ptr<http::Exchange>& exchange) {
  exchange->respond(page_file(exchange->request(), kIndex));
}

void page_asset(Service&, const std::shared_ptr<http::Exchange>& exchange) {
  const http::Request& request = exchange->request();
  exchange->respond(page_file(request, "assets/" + route_argument(request.method, request.path)));
}

}  // namespace quarrel
