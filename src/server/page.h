// The page at /: chat, dashboard, embeddings. Its files are built from web/ into web/dist, compressed, and are part of
// the program; nothing comes from elsewhere, and the policy that goes with it allows nothing else. Any thread.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "server/http/exchange.h"
#include "server/service.h"

namespace quarrel {

// GET /: the page for whoever takes HTML; for others, and for HEAD, what Ollama's clients look for.
void page_root(Service& service, const std::shared_ptr<http::Exchange>& exchange);
// GET /status and the like: the same page, which shows another part of itself.
void page_view(Service& service, const std::shared_ptr<http::Exchange>& exchange);
// GET /assets/{name}: names change with what is in them, so browsers may keep them forever.
void page_asset(Service& service, const std::shared_ptr<http::Exchange>& exchange);

// What goes with every file of this page and of the one at /docs: scripts, looks and pictures only from here, calls
// only to here, no page of others around it, and text becomes markup by way of the sanitiser alone.
http::Headers page_headers();

// The answer with a file of web/dist to a request; status 404 where there is none of that name.
http::Response page_file(const http::Request& request, std::string_view name);

}  // namespace quarrel
