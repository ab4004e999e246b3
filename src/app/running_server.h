// The server that the settings speak of, for commands on the same machine: where it is, and what it holds. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "app/server_client.h"
#include "app/settings_in_force.h"

namespace quarrel {

// Where the settings say that a server is.
ServerAddress server_address(const ServeSettings& settings);

// Connects, to the Unix socket first unless a host or a port was named by something that counts more. Throws
// Error(not_found) with a sentence that says where nobody is, and what to do.
std::unique_ptr<ServerClient> require_server(const GivenSettings& given);

struct HeldModel {
  std::string name = {};  // without Ollama's ":latest"
  std::string digest = {};
  std::uint64_t bytes = 0;
  std::int64_t context = 0;
  std::string context_limit = {};  // what made it shorter than the model's own, in words; empty: nothing did
  std::string expires = {};        // as the server writes it
  nlohmann::ordered_json json = {};
};
// The models in the server's memory. Throws Error(io) where it does not say.
std::vector<HeldModel> held_models(ServerClient& client);

}  // namespace quarrel
