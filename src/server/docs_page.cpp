#include "server/docs_page.h"

#include <string>
#include <string_view>

#include "server/docs_files.h"

namespace quarrel {
namespace {

// Scripts and looks only from here, calls only to here, and no page of others around it.
constexpr std::string_view kPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'";

void respond(http::Exchange& exchange, const char* content_type, std::string_view bytes) {
  exchange.respond({.content_type = content_type,
                    .headers = {{"Content-Security-Policy", std::string(kPolicy)},
                                {"Referrer-Policy", "no-referrer"},
                                {"Cache-Control", "no-cache"}},
                    .body = std::string(bytes)});
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
