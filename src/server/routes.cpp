#include "server/routes.h"

#include <array>

#include "server/docs_page.h"
#include "server/health_api.h"
#include "server/longbow_api.h"
#include "server/model_api.h"
#include "server/native_api.h"
#include "server/native_stream.h"
#include "server/ollama_api.h"
#include "server/ollama_models.h"
#include "server/ollama_store_api.h"
#include "server/openai_api.h"
#include "server/openapi.h"
#include "server/page.h"
#include "server/rerank_api.h"
#include "server/text_api.h"
#include "server/watch/watch.h"
#include "server/ws_session.h"

namespace quarrel {
namespace {

constexpr std::uint64_t kLargeBody = std::uint64_t{16} << 20;
constexpr std::uint64_t kTextBody = std::uint64_t{1} << 20;  // what comes of it is many times as long
constexpr std::uint64_t kSmallBody = std::uint64_t{64} << 10;

constexpr std::array kRoutes = {
    Route{"POST", "/v1/chat/completions", Access::key, Dialect::openai, kLargeBody, false, openai_chat,
          "Continues a conversation", describe_openai_chat},
    Route{"POST", "/v1/completions", Access::key, Dialect::openai, kLargeBody, false, openai_completion,
          "Continues a text", describe_openai_completion},
    Route{"POST", "/v1/embeddings", Access::key, Dialect::openai, kLargeBody, false, openai_embeddings,
          "Turns texts into vectors", describe_openai_embeddings},
    Route{"GET", "/v1/models", Access::key, Dialect::openai, 0, false, openai_models, "Lists the models",
          describe_openai_models},
    Route{"GET", "/v1/models/{id}", Access::key, Dialect::openai, 0, false, openai_model, "Tells of one model",
          describe_openai_model},
    Route{"POST", "/api/generate", Access::key, Dialect::native, kLargeBody, false, shared_generate, "Answers a prompt",
          describe_shared_generate},
    Route{"POST", "/api/native/generate", Access::key, Dialect::native, kLargeBody, false, native_generate,
          "Answers a prompt", describe_native_generate},
    Route{"POST", "/api/stream", Access::key, Dialect::native, kLargeBody, false, native_stream,
          "Answers a prompt token by token", describe_native_stream},
    Route{"DELETE", "/api/stream", Access::key, Dialect::native, kSmallBody, false, stop_stream,
          "Ends such an answer, which may outlive its connection", describe_stop_stream},
    Route{"GET", "/ws", Access::key, Dialect::native, 0, false, open_websocket,
          "Opens a WebSocket: answers, stop, status and metrics in messages", describe_websocket},
    Route{"POST", "/api/chat", Access::key, Dialect::native, kLargeBody, false, ollama_chat,
          "Continues a conversation, as Ollama does", describe_ollama_chat},
    Route{"POST", "/api/embed", Access::key, Dialect::native, kLargeBody, false, ollama_embed,
          "Turns texts into vectors, as Ollama does", describe_ollama_embed},
    Route{"POST", "/api/embeddings", Access::key, Dialect::native, kLargeBody, false, ollama_embeddings,
          "Turns one text into a vector, as Ollama did", describe_ollama_embeddings},
    Route{"GET", "/api/tags", Access::key, Dialect::native, 0, false, ollama_tags, "Lists the models, as Ollama does",
          describe_ollama_tags},
    Route{"POST", "/api/show", Access::key, Dialect::native, kSmallBody, false, ollama_show,
          "Tells what a model's file says", describe_ollama_show},
    Route{"GET", "/api/ps", Access::key, Dialect::native, 0, false, ollama_ps, "Lists the models in memory",
          describe_ollama_ps},
    Route{"DELETE", "/api/delete", Access::admin, Dialect::native, kSmallBody, false, ollama_delete,
          "Removes a model of Quarrel's store", describe_ollama_delete},
    Route{"POST", "/api/copy", Access::admin, Dialect::native, kSmallBody, false, ollama_copy,
          "Gives a model a further name", describe_ollama_copy},
    Route{"POST", "/api/pull", Access::admin, Dialect::native, kSmallBody, false, ollama_pull,
          "Fetches a model from the registry of the settings", describe_ollama_pull},
    Route{"POST", "/api/push", Access::admin, Dialect::native, kSmallBody, false, ollama_push, "Not offered",
          describe_ollama_push},
    Route{"POST", "/api/create", Access::admin, Dialect::native, kLargeBody, false, ollama_create,
          "Makes a model of another, with settings of its own", describe_ollama_create},
    Route{"GET", "/api/models", Access::key, Dialect::native, 0, false, native_models,
          "Lists the models and which are loaded", describe_native_models},
    Route{"GET", "/api/models/{name}", Access::key, Dialect::native, 0, false, native_model,
          "Tells all that is known of a model", describe_native_model},
    Route{"POST", "/api/models/{name}/load", Access::admin, Dialect::native, kSmallBody, false, load_model,
          "Loads a model, or reloads it, with news of it", describe_load_model},
    Route{"POST", "/api/models/{name}/unload", Access::admin, Dialect::native, kSmallBody, false, unload_model,
          "Unloads a model", describe_unload_model},
    Route{"DELETE", "/api/models/{name}/cache", Access::admin, Dialect::native, kSmallBody, false, clear_model_cache,
          "Forgets the texts in a model's prefix cache", describe_clear_model_cache},
    Route{"POST", "/tokenize", Access::key, Dialect::native, kTextBody, false, tokenize, "Turns a text into tokens",
          describe_tokenize},
    Route{"POST", "/detokenize", Access::key, Dialect::native, kTextBody, false, detokenize, "Turns tokens into a text",
          describe_detokenize},
    Route{"POST", "/apply-template", Access::key, Dialect::native, kTextBody, false, apply_template,
          "Renders a conversation by the model's template", describe_apply_template},
    Route{"POST", "/rerank", Access::key, Dialect::native, kLargeBody, false, rerank,
          "Orders texts by how well they answer a query", describe_rerank},
    Route{"POST", "/v1/rerank", Access::key, Dialect::openai, kLargeBody, false, openai_rerank, "The same",
          describe_openai_rerank},
    Route{"POST", "/api/embed-to", Access::key, Dialect::native, kLargeBody, false, embed_to,
          "Stores texts with their vectors in Longbow", describe_embed_to},
    Route{"POST", "/api/search", Access::key, Dialect::native, kLargeBody, false, search_store,
          "Finds the nearest texts in a dataset of Longbow", describe_store_search},
    Route{"GET", "/api/version", Access::key, Dialect::native, 0, true, ollama_version,
          "Tells the version of Ollama's API that is spoken", describe_ollama_version},
    Route{"GET", "/", Access::everybody, Dialect::native, 0, true, page_root,
          "The page for browsers; tells Ollama's clients that all is well", describe_page_root},
    Route{"GET", "/status", Access::everybody, Dialect::native, 0, true, page_view, "The page's dashboard",
          describe_page_status},
    Route{"GET", "/embeddings", Access::everybody, Dialect::native, 0, true, page_view, "The page's part on vectors",
          describe_page_embeddings},
    Route{"GET", "/assets/{name}", Access::everybody, Dialect::native, 0, true, page_asset, "The page's files",
          describe_page_asset},
    Route{"GET", "/health", Access::everybody, Dialect::native, 0, true, health, "Tells whether all is well",
          describe_health},
    Route{"GET", "/v1/health", Access::everybody, Dialect::openai, 0, true, health, "The same", describe_v1_health},
    Route{"GET", "/api/health", Access::everybody, Dialect::native, 0, true, health, "The same", describe_api_health},
    Route{"GET", "/healthz", Access::everybody, Dialect::native, 0, true, health, "The same", describe_healthz},
    Route{"GET", "/readyz", Access::everybody, Dialect::native, 0, true, readiness,
          "Tells whether requests are taken now", describe_readiness},
    Route{"GET", "/metrics", Access::metrics, Dialect::native, 0, false, metrics_text, "Figures for Prometheus",
          describe_metrics},
    Route{"GET", "/api/metrics", Access::metrics, Dialect::native, 0, false, metrics_json, "The same figures as JSON",
          describe_metrics_json},
    Route{"GET", "/version", Access::key, Dialect::native, 0, true, version, "Tells the program's version",
          describe_version},
    Route{"GET", "/openapi.json", Access::everybody, Dialect::native, 0, true, openapi_json,
          "Describes all of this for programs", describe_openapi_json},
    Route{"GET", "/openapi.yaml", Access::everybody, Dialect::native, 0, true, openapi_yaml, "The same as YAML",
          describe_openapi_yaml},
    Route{"GET", "/docs", Access::everybody, Dialect::native, 0, true, docs_page,
          "Shows it as a page to read and to try calls on", describe_docs},
    Route{"GET", "/docs/page.js", Access::everybody, Dialect::native, 0, true, docs_script, "The page's script",
          describe_docs_script},
    Route{"GET", "/docs/page.css", Access::everybody, Dialect::native, 0, true, docs_style, "The page's looks",
          describe_docs_style},
};

// A pattern's text before and behind its "{…}".
struct Ends {
  std::string_view before, behind;
};

Ends ends_of(std::string_view pattern) noexcept {
  return {.before = pattern.substr(0, pattern.find('{')), .behind = pattern.substr(pattern.find('}') + 1)};
}

bool matches(std::string_view pattern, std::string_view path) noexcept {
  if (pattern.find('{') == std::string_view::npos) return pattern == path;
  const auto [before, behind] = ends_of(pattern);
  return path.size() > before.size() + behind.size() && path.starts_with(before) && path.ends_with(behind);
}

// A pattern that says how a path ends means it more than one that takes any end.
bool says_the_end(std::string_view pattern) noexcept { return !pattern.ends_with('}'); }

}  // namespace

std::span<const Route> routes() noexcept { return kRoutes; }

RouteMatch find_route(std::string_view method, std::string_view path) {
  RouteMatch match;
  const std::string_view wanted = method == "HEAD" ? "GET" : method;
  for (const bool with_end : {true, false}) {
    for (const Route& route : kRoutes) {
      if (says_the_end(route.path) != with_end || !matches(route.path, path)) continue;
      if (route.method == wanted) return {.route = &route};
      if (!match.allowed.empty()) match.allowed += ", ";
      match.allowed += route.method == "GET" ? "GET, HEAD" : route.method;
    }
    if (!match.allowed.empty()) break;
  }
  return match;
}

std::string route_argument(std::string_view method, std::string_view path) {
  const Route* route = find_route(method, path).route;
  if (route == nullptr || route->path.find('{') == std::string_view::npos) return {};
  const auto [before, behind] = ends_of(route->path);
  return std::string(path.substr(before.size(), path.size() - before.size() - behind.size()));
}

Dialect dialect_of(std::string_view path) noexcept {
  return path.starts_with("/v1/") ? Dialect::openai : Dialect::native;
}

http::Response error_answer(Dialect dialect, const ApiError& error) {
  return dialect == Dialect::openai ? openai_error(error) : plain_error(error);
}

}  // namespace quarrel
