#include "server/registry_client.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/lower_case.h"
#include "base/printable.h"
#include "server/api_error.h"

namespace quarrel {
namespace {

// Where a model of that name is asked for.
http::Url base_of(const PullSettings& settings, const OllamaName& name) {
  const std::optional<http::Url> registry = http::Url::parse(settings.registry);
  if (!registry) {
    throw invalid_request("unsupported", "this server fetches no models: its settings name no registry");
  }
  const std::string host = lower_case(name.host);
  if (host.empty() || host == registry->authority()) return *registry;
  const std::optional<http::Url> other = http::Url::parse("https://" + host);
  if (!other || std::ranges::find(settings.hosts, host) == settings.hosts.end()) {
    throw invalid_field(
        "model",
        fmt::format("models may not be fetched from '{}': the server's settings name the hosts", printable(name.host)));
  }
  return *other;
}

}  // namespace

void check_registry(const PullSettings& settings, const OllamaName& name) { base_of(settings, name); }

RegistryClient::RegistryClient(const PullSettings& settings, const OllamaName& name, std::stop_token stop)
    : base_(base_of(settings, name)) {
  options_.allowed_hosts = settings.hosts;
  options_.allowed_hosts.push_back(http::Url::parse(settings.registry)->authority());
  options_.headers = {{"Accept", "application/vnd.docker.distribution.manifest.v2+json, */*"}};
  options_.stop = std::move(stop);
}

unsigned RegistryClient::get(const std::string& path, std::uint64_t offset, const Take& take) {
  http::Url url = base_;
  if (url.target.ends_with('/')) url.target.pop_back();
  url.target += path;
  options_.offset = offset;
  return http::fetch(url, options_, take);
}

}  // namespace quarrel
