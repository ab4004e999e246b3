// A registry as pulls see it, over HTTP: the one of the settings, or another host that they name. One thread.
#pragma once

#include <stop_token>

#include "server/http/client.h"
#include "server/service.h"
#include "store/ollama_store.h"
#include "store/registry_pull.h"

namespace quarrel {

// Throws ApiError where the settings have no registry for a model of that name.
void check_registry(const PullSettings& settings, const OllamaName& name);

class RegistryClient final : public RegistryTransport {
 public:
  // Throws as check_registry does.
  RegistryClient(const PullSettings& settings, const OllamaName& name, std::stop_token stop);
  unsigned get(const std::string& path, std::uint64_t offset, const Take& take) override;

 private:
  http::Url base_;
  http::FetchOptions options_;
};

}  // namespace quarrel
