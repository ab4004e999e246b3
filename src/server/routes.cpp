#include "server/routes.h"

#include <array>

#include "server/native_api.h"
#include "server/ollama_api.h"
#include "server/ollama_models.h"
#include "server/openai_api.h"

namespace quarrel {
namespace {

constexpr std::uint64_t kLargeBody = std::uint64_t{16} << 20;
constexpr std::uint64_t kSmallBody = std::uint64_t{64} << 10;

constexpr std::array kRoutes = {
    Route{"POST", "/v1/chat/completions", Access::key, Dialect::openai, kLargeBody, false, openai_chat,
          "Continues a conversation"},
    Route{"POST", "/v1/completions", Access::key, Dialect::openai, kLargeBody, false, openai_completion,
          "Continues a text"},
    Route{"POST", "/v1/embeddings", Access::key, Dialect::openai, kLargeBody, false, openai_embeddings,
          "Turns texts into vectors"},
    Route{"GET", "/v1/models", Access::key, Dialect::openai, 0, false, openai_models, "Lists the models"},
    Route{"GET", "/v1/models/{id}", Access::key, Dialect::openai, 0, false, openai_model, "Tells of one model"},
    Route{"POST", "/api/generate", Access::key, Dialect::native, kLargeBody, false, shared_generate,
          "Answers a prompt"},
    Route{"POST", "/api/native/generate", Access::key, Dialect::native, kLargeBody, false, native_generate,
          "Answers a prompt"},
    Route{"POST", "/api/stream", Access::key, Dialect::native, kLargeBody, false, native_stream,
          "Answers a prompt token by token"},
    Route{"POST", "/api/chat", Access::key, Dialect::native, kLargeBody, false, ollama_chat,
          "Continues a conversation, as Ollama does"},
    Route{"POST", "/api/embed", Access::key, Dialect::native, kLargeBody, false, ollama_embed,
          "Turns texts into vectors, as Ollama does"},
    Route{"POST", "/api/embeddings", Access::key, Dialect::native, kLargeBody, false, ollama_embeddings,
          "Turns one text into a vector, as Ollama did"},
    Route{"GET", "/api/tags", Access::key, Dialect::native, 0, false, ollama_tags, "Lists the models, as Ollama does"},
    Route{"POST", "/api/show", Access::key, Dialect::native, kSmallBody, false, ollama_show,
          "Tells what a model's file says"},
    Route{"GET", "/api/ps", Access::key, Dialect::native, 0, false, ollama_ps, "Lists the models in memory"},
    Route{"DELETE", "/api/delete", Access::admin, Dialect::native, kSmallBody, false, ollama_delete,
          "Removes a model of Quarrel's store"},
    Route{"POST", "/api/copy", Access::admin, Dialect::native, kSmallBody, false, ollama_copy,
          "Gives a model a further name"},
    Route{"POST", "/api/pull", Access::admin, Dialect::native, kSmallBody, false, ollama_pull, "Not offered yet"},
    Route{"POST", "/api/push", Access::admin, Dialect::native, kSmallBody, false, ollama_push, "Not offered"},
    Route{"POST", "/api/create", Access::admin, Dialect::native, kLargeBody, false, ollama_create, "Not offered yet"},
    Route{"GET", "/api/version", Access::everybody, Dialect::native, 0, true, ollama_version,
          "Tells the program's version, as Ollama does"},
    Route{"GET", "/", Access::everybody, Dialect::native, 0, true, ollama_root,
          "Tells Ollama's clients that all is well"},
    Route{"GET", "/health", Access::everybody, Dialect::native, 0, true, health, "Tells that the server is there"},
    Route{"GET", "/api/health", Access::everybody, Dialect::native, 0, true, health, "The same"},
    Route{"GET", "/healthz", Access::everybody, Dialect::native, 0, true, health, "The same"},
    Route{"GET", "/readyz", Access::everybody, Dialect::native, 0, true, readiness,
          "Tells whether requests are taken now"},
    Route{"GET", "/version", Access::everybody, Dialect::native, 0, true, version, "Tells the program's version"},
};

bool matches(std::string_view pattern, std::string_view path) noexcept {
  const std::size_t open = pattern.find('{');
  if (open == std::string_view::npos) return pattern == path;
  return path.size() > open && path.starts_with(pattern.substr(0, open));
}

}  // namespace

std::span<const Route> routes() noexcept { return kRoutes; }

RouteMatch find_route(std::string_view method, std::string_view path) {
  RouteMatch match;
  const std::string_view wanted = method == "HEAD" ? "GET" : method;
  for (const Route& route : kRoutes) {
    if (!matches(route.path, path)) continue;
    if (route.method == wanted) return {.route = &route};
    if (!match.allowed.empty()) match.allowed += ", ";
    match.allowed += route.method;
  }
  return match;
}

Dialect dialect_of(std::string_view path) noexcept {
  return path.starts_with("/v1/") ? Dialect::openai : Dialect::native;
}

}  // namespace quarrel
