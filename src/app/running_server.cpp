#include "app/running_server.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "app/input.h"
#include "base/environment.h"
#include "base/error.h"
#include "base/printable.h"
#include "server/http/client.h"

namespace quarrel {
namespace {

constexpr std::string_view kLatest = ":latest";

// What stands under a name, if it is what it should be.
std::string text_of(const nlohmann::ordered_json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

std::int64_t number_of(const nlohmann::ordered_json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_number_integer() ? found->get<std::int64_t>() : 0;
}

}  // namespace

ServerAddress server_address(const ServeSettings& settings) {
  const ServeOptions options = serve_options(settings);
  ServerAddress address{.unix_socket = options.http.unix_socket,
                        .host = options.http.address,
                        .port = options.http.port,
                        .secure = !options.http.tls.certificate.empty(),
                        .key = options.admission.keys.single_key};
  // https://name:port is the whole of it.
  if (address.host.find("://") == std::string::npos) return address;
  const std::optional<http::Url> url = http::Url::parse(address.host);
  if (!url || url->target != "/")
    fail(ErrorKind::usage, "'{}' is not the address of a server", printable(address.host));
  address.unix_socket.clear();
  address.host = url->host;
  address.port = url->port;
  address.secure = url->secure;
  return address;
}

std::unique_ptr<ServerClient> require_server(const GivenSettings& given) {
  const SettingsInForce in_force = settings_in_force(given, environment);
  ServerAddress address = server_address(in_force.settings);
  address.ca_file = given.ca_file;
  // Whoever names a host or a port means the server there, and not the one that happens to have the usual socket.
  const SettingOrigin place = std::max(in_force.origin("server.host"), in_force.origin("server.port"));
  if (place > in_force.origin("server.unix_socket")) address.unix_socket.clear();
  std::unique_ptr<ServerClient> client = ServerClient::connect(address);
  if (client != nullptr) return client;
  fail(ErrorKind::not_found,
       "no server runs at {}{} port {}; `quarrel serve` starts one, --port or --unix-socket name another",
       address.unix_socket.empty() ? "" : address.unix_socket + " or ", address.host, address.port);
}

std::vector<HeldModel> held_models(ServerClient& client) {
  const ServerAnswer answer = client.call("GET", "/api/ps");
  if (answer.status != 200) fail(ErrorKind::io, "the server at {} refuses: {}", client.where(), error_of(answer));
  const nlohmann::ordered_json json = parse_json(answer.body, "the server's list of models");
  const auto list = json.is_object() ? json.find("models") : json.end();
  if (!json.is_object() || list == json.end() || !list->is_array()) {
    fail(ErrorKind::io, "what answers at {} is not a Quarrel server", client.where());
  }
  std::vector<HeldModel> models;
  for (const auto& each : *list) {
    if (!each.is_object()) continue;
    std::string name = text_of(each, "name");
    if (name.ends_with(kLatest)) name.resize(name.size() - kLatest.size());
    models.push_back({.name = std::move(name),
                      .digest = text_of(each, "digest"),
                      .bytes = static_cast<std::uint64_t>(std::max<std::int64_t>(number_of(each, "size"), 0)),
                      .context = number_of(each, "context_length"),
                      .context_limit = text_of(each, "context_limit"),
                      .expires = text_of(each, "expires_at"),
                      .json = each});
  }
  return models;
}

}  // namespace quarrel
