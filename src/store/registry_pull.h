// Fetches a model from a registry of the kind that Ollama's clients pull from, into Quarrel's own store. What comes is
// checked before it is used: a digest is 64 hexadecimal digits before it becomes part of a path, sizes are those that
// the manifest says, and bytes are what their digest says. What was fetched of a model stays in the store as
// `.pull-DIGEST` until it is whole, so that the next try goes on there. How bytes come is the caller's: see
// `Transport`.
//
// Threads: one a pull; pulls of one model at once, of several processes too, fetch it once and wait for one another.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>

#include "store/ollama_store.h"
#include "store/store.h"

namespace quarrel {

class RegistryTransport {
 public:
  virtual ~RegistryTransport() = default;
  // GET of a path of the registry, from byte `offset` of the document on. `take` gets the status and the bytes as they
  // come, and nothing of an answer that is none (404 …). Gives the status: 200 for the whole document, 206 for the rest
  // of it. Throws Error: io where no answer comes or it is cut short, cancelled, and what `take` throws.
  using Take = std::function<void(unsigned status, std::span<const std::byte> bytes)>;
  virtual unsigned get(const std::string& path, std::uint64_t offset, const Take& take) = 0;
};

// As Ollama's clients hear of it.
struct RegistryProgress {
  std::string_view status = {};
  std::string_view digest = {};  // "sha256:…", of a layer; empty: it is about no layer
  std::uint64_t total = 0, completed = 0;
};

struct RegistryPullOptions {
  std::string stored_name = {};                                // what it is called in the store
  std::function<void(const RegistryProgress&)> progress = {};  // on the caller's thread; not too often
  std::stop_token stop = {};
  std::chrono::milliseconds pause = std::chrono::seconds(1);  // before a broken download goes on
};

// Messages of its Errors hold no paths: they are for whoever asked. Throws Error: not_found for a model that the
// registry does not have, bad_file for what is not as its manifest says or is no model, unsupported for a model that we
// cannot run, usage for a name that cannot be one, io for what the registry does not do, StoreFault, cancelled.
void pull_from_registry(const OllamaName& name, const ModelStore& store, RegistryTransport& transport,
                        const RegistryPullOptions& options);

// The name by which a pulled model is asked for: without the default namespace and tag.
std::string pulled_name(const OllamaName& name);

}  // namespace quarrel
