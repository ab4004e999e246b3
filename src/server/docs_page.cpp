#include "server/docs_page.h"

#include <string>
#include <string_view>
#include <utility>

#include "server/docs_files.h"
#include "server/page.h"

namespace quarrel {
namespace {

void respond(http::Exchange& exchange, const char* content_type, std::string_view bytes) {
  http::Response response{.content_type = content_type, .headers = page_headers(), .body = std::string(bytes)};
  response.headers.emplace_back("Cache-Control", "no-cache");
  exchange.respond(std::move(response));
}

}  // namespace

void docs_page(Service&, const std::shared_ptr<http::Exchange>& exchange) {
  respond(*exchange, "text/html; charset=utf-8", files::kDocsHtml);
}

void docs_script(Service&, const std::shared_ptr<http::Exchange>& exchange) {
  respond(*exchange, "text/javascript; charset=utf-8", files::kDocsScript);
}

void docs_style(Service&, const std::shared_ptr<http::Exchange>& exchange) {
  respond(*exchange, "text/css; charset=utf-8", files::kDocsStyle);
}

}  // namespace quarrel
