#include "store/registry_pull.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <system_error>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json_depth.h"
#include "base/lower_case.h"
#include "base/printable.h"
#include "base/sha256.h"
#include "gguf/file.h"
#include "store/model_description.h"
#include "store/own_store.h"
#include "store/partial_blob.h"
#include "store/store_fault.h"

namespace quarrel {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr std::uint64_t kMostManifestBytes = 4u << 20;
constexpr std::uint64_t kMostTextBytes = 4u << 20;  // of a layer that is text
constexpr std::uint64_t kMostModelBytes = std::uint64_t{1} << 43;
constexpr int kDeepest = 32;
constexpr int kMostFailures = 5;  // in a row, without a byte between them
constexpr std::size_t kDigits = 64;
constexpr std::string_view kDigestStart = "sha256:";
constexpr std::string_view kLayerPrefix = "application/vnd.ollama.image.";
constexpr std::string_view kDefaultSpace = "library";
constexpr std::string_view kDefaultTag = "latest";

// A layer that we know how to use. Nothing but 64 hexadecimal digits can be its digest.
struct Layer {
  std::string kind = {};
  std::string digits = {};
  std::uint64_t bytes = 0;

  std::string digest() const { return std::string(kDigestStart) + digits; }
};

struct Manifest {
  std::optional<Layer> model = {}, system = {}, params = {}, template_text = {}, license = {};
};

std::string read_digest(const Json& layer) {
  const auto found = layer.find("digest");
  const std::string digest = found != layer.end() && found->is_string() ? found->get<std::string>() : "";
  const auto is_hex = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  const std::string digits = lower_case(digest.substr(std::min(kDigestStart.size(), digest.size())));
  if (!digest.starts_with(kDigestStart) || digits.size() != kDigits || !std::ranges::all_of(digits, is_hex)) {
    fail(ErrorKind::bad_file, "the manifest has '{}' for a digest, not sha256 and 64 hexadecimal digits",
         printable(digest));
  }
  return digits;
}

Layer read_layer(const Json& json, std::string kind, std::uint64_t most) {
  const auto size = json.find("size");
  if (size == json.end() || !size->is_number_unsigned() || size->get<std::uint64_t>() > most) {
    fail(ErrorKind::bad_file, "the manifest's layer '{}' has no size, or one beyond {} bytes", kind, most);
  }
  return {.kind = std::move(kind), .digits = read_digest(json), .bytes = size->get<std::uint64_t>()};
}

Manifest read_manifest(const std::string& text) {
  const Json json = nests_deeper(text, kDeepest) ? Json() : Json::parse(text, nullptr, false);
  const auto layers = json.is_object() ? json.find("layers") : json.end();
  if (!json.is_object() || layers == json.end() || !layers->is_array()) {
    fail(ErrorKind::bad_file, "the registry's manifest is not a JSON object with a list of layers");
  }
  Manifest manifest;
  for (const Json& each : *layers) {
    const auto type = each.is_object() ? each.find("mediaType") : each.end();
    if (!each.is_object() || type == each.end() || !type->is_string()) {
      fail(ErrorKind::bad_file, "the registry's manifest has a layer without a type");
    }
    const std::string name = type->get<std::string>();
    if (!name.starts_with(kLayerPrefix)) continue;
    const std::string kind = name.substr(kLayerPrefix.size());
    if (kind == "model") manifest.model = read_layer(each, kind, kMostModelBytes);
    if (kind == "system") manifest.system = read_layer(each, kind, kMostTextBytes);
    if (kind == "params") manifest.params = read_layer(each, kind, kMostTextBytes);
    if (kind == "template") manifest.template_text = read_layer(each, kind, kMostTextBytes);
    if (kind == "license") manifest.license = read_layer(each, kind, kMostTextBytes);
    if (kind == "adapter" || kind == "tensor") {
      fail(ErrorKind::unsupported, "the model has a layer '{}'; only GGUF models without adapters can be run", kind);
    }
  }
  if (!manifest.model) fail(ErrorKind::unsupported, "the registry has no GGUF weights for this model");
  return manifest;
}

class RegistryPull {
 public:
  RegistryPull(const OllamaName& name, const ModelStore& store, RegistryTransport& transport,
               const RegistryPullOptions& options)
      : name_(name), store_(store), folder_(store.paths().quarrel), transport_(transport), options_(options) {}

  void run() {
    report({.status = "pulling manifest"});
    const Manifest manifest = read_manifest(
        fetch_text(fmt::format("{}/manifests/{}", repository(), name_.tag.empty() ? kDefaultTag : name_.tag),
                   kMostManifestBytes, true));
    StoredSettings settings = fetch_settings(manifest);
    make_folder();
    PartialBlob::clean_up(folder_);
    put_model(*manifest.model, settings);
  }

 private:
  std::string repository() const {
    return fmt::format("/v2/{}/{}", name_.space.empty() ? kDefaultSpace : name_.space, name_.model);
  }
  void report(const RegistryProgress& progress) const {
    go_on();
    if (options_.progress) options_.progress(progress);
  }
  void go_on() const {
    if (options_.stop.stop_requested()) fail(ErrorKind::cancelled, "the pull was cancelled");
  }

  void make_folder() const {
    std::error_code fault;
    fs::create_directories(folder_, fault);
    if (fault) {
      throw StoreFault(fmt::format("the model store cannot be written: {}", fault.message()),
                       StoreFault::is_full(fault.value()));
    }
  }

  std::string fetch_text(const std::string& path, std::uint64_t most, bool may_be_absent) const {
    std::string text;
    const unsigned status = transport_.get(path, 0, [&](unsigned, std::span<const std::byte> bytes) {
      go_on();
      if (text.size() + bytes.size() > most) {
        fail(ErrorKind::bad_file, "the registry sends more than {} bytes for a small document", most);
      }
      text.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    });
    if (status == 404 && may_be_absent) fail(ErrorKind::not_found, "the registry does not have this model");
    if (status != 200) fail(ErrorKind::io, "the registry answers with status {}", status);
    return text;
  }

  std::optional<std::string> fetch_layer(const std::optional<Layer>& layer) const {
    if (!layer) return std::nullopt;
    report({.status = status_of(*layer), .digest = layer->digest(), .total = layer->bytes});
    std::string text = fetch_text(blob_path(*layer), layer->bytes, false);
    if (text.size() != layer->bytes || sha256(text) != layer->digits) refuse_digest(*layer);
    report({.status = status_of(*layer), .digest = layer->digest(), .total = layer->bytes, .completed = layer->bytes});
    return text;
  }

  StoredSettings fetch_settings(const Manifest& manifest) const {
    StoredSettings settings{.from = {},
                            .system = fetch_layer(manifest.system),
                            .template_text = fetch_layer(manifest.template_text),
                            .params = fetch_layer(manifest.params),
                            .license = fetch_layer(manifest.license).value_or("")};
    if (settings.template_text && is_go_template(*settings.template_text)) settings.template_text.reset();
    if (settings.params &&
        (nests_deeper(*settings.params, kDeepest) || !Json::parse(*settings.params, nullptr, false).is_object())) {
      fail(ErrorKind::bad_file, "the parameters of the model are not a JSON object");
    }
    return settings;
  }

  // The weights come from a file of the store that has them already, or from the registry.
  void put_model(const Layer& layer, const StoredSettings& settings) const {
    if (link_known(layer, settings)) return;
    PartialBlob blob(folder_, layer.digits, [this] { go_on(); });
    if (link_known(layer, settings)) return;  // another pull has brought them meanwhile
    check_room(layer, blob);
    download(layer, blob);
    verify(layer, blob);
    blob.sync();
    report({.status = "writing manifest"});
    in_store([&] { store_.adopt(options_.stored_name, blob.path(), layer.digits, settings); });
  }

  bool link_known(const Layer& layer, const StoredSettings& settings) const {
    for (const StoredFile& file : stored_files(folder_)) {
      if (file.parts.size() != 1 || known_digest(file.path()) != layer.digits) continue;
      if (!describe_file(file.path()).problem.empty()) continue;  // what comes from the registry is whole
      report({.status = status_of(layer), .digest = layer.digest(), .total = layer.bytes, .completed = layer.bytes});
      report({.status = "writing manifest"});
      const ResolvedModel known{file.path(), file.name, ModelPlace::quarrel, {}, {}, {}};
      in_store([&] { store_.create(options_.stored_name, known, settings); });
      return true;
    }
    return false;
  }

  // What the store cannot do it tells with its path.
  template <typename Work>
  static void in_store(const Work& work) {
    try {
      work();
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::io) throw;
      throw StoreFault("the model store cannot be written", false);
    }
  }

  void check_room(const Layer& layer, const PartialBlob& blob) const {
    std::error_code fault;
    const auto space = fs::space(folder_, fault);
    const std::uint64_t missing = layer.bytes - std::min(layer.bytes, blob.bytes());
    if (!fault && space.available < missing) {
      throw StoreFault(
          fmt::format("the model store's disk has {} bytes left and the model needs {}", space.available, missing),
          true);
    }
  }

  void download(const Layer& layer, PartialBlob& blob) const {
    if (blob.bytes() > layer.bytes) blob.restart();
    int failures = 0;
    while (blob.bytes() < layer.bytes) {
      const std::uint64_t before = blob.bytes();
      try {
        fetch_rest(layer, blob);
        if (blob.bytes() < layer.bytes) fail(ErrorKind::io, "the registry ended a download early");
      } catch (const StoreFault&) {
        throw;  // another try would come no further
      } catch (const Error& error) {
        failures = blob.bytes() > before ? 1 : failures + 1;
        if (error.kind() != ErrorKind::io || failures >= kMostFailures) throw;
        pause();
      }
    }
  }

  void fetch_rest(const Layer& layer, PartialBlob& blob) const {
    const std::uint64_t offset = blob.bytes();
    bool first = true;
    const auto take = [&](unsigned status, std::span<const std::byte> bytes) {
      go_on();
      // Who cannot begin in the middle sends all of it.
      if (std::exchange(first, false) && status == 200 && offset > 0) blob.restart();
      if (blob.bytes() + bytes.size() > layer.bytes) {
        blob.discard();
        fail(ErrorKind::bad_file, "the registry sends more than the {} bytes that it said", layer.bytes);
      }
      blob.append(bytes);
      report({.status = status_of(layer), .digest = layer.digest(), .total = layer.bytes, .completed = blob.bytes()});
    };
    const unsigned status = transport_.get(blob_path(layer), offset, take);
    if (status != 200 && status != 206) fail(ErrorKind::io, "the registry answers with status {}", status);
  }

  void verify(const Layer& layer, PartialBlob& blob) const {
    report({.status = "verifying sha256 digest"});
    if (sha256_file(blob.path(), {}, options_.stop) != layer.digits) {
      blob.discard();
      refuse_digest(layer);
    }
    try {
      if (!GgufFile::open(blob.path()).tensors().empty()) return;
    } catch (const Error&) {
    }
    blob.discard();
    fail(ErrorKind::bad_file, "what the registry has for this model is not a readable GGUF file");
  }

  [[noreturn]] static void refuse_digest(const Layer& layer) {
    fail(ErrorKind::bad_file, "the SHA-256 of what was fetched for {} is another one", layer.digest());
  }

  std::string blob_path(const Layer& layer) const { return fmt::format("{}/blobs/{}", repository(), layer.digest()); }
  std::string_view status_of(const Layer& layer) const {
    status_ = fmt::format("pulling {}", layer.digits.substr(0, 12));
    return status_;
  }

  void pause() const {
    std::mutex mutex;
    std::condition_variable_any changed;
    std::unique_lock lock(mutex);
    changed.wait_for(lock, options_.stop, options_.pause, [] { return false; });
    go_on();
  }

  const OllamaName& name_;
  const ModelStore& store_;
  const fs::path folder_;
  RegistryTransport& transport_;
  const RegistryPullOptions& options_;
  mutable std::string status_;
};

}  // namespace

std::string pulled_name(const OllamaName& name) {
  std::string text = name.host.empty() ? "" : name.host + "/";
  if (!name.space.empty() && (name.space != kDefaultSpace || !name.host.empty())) text += name.space + "/";
  text += name.model;
  if (!name.tag.empty() && name.tag != kDefaultTag) text += ":" + name.tag;
  return text;
}

void pull_from_registry(const OllamaName& name, const ModelStore& store, RegistryTransport& transport,
                        const RegistryPullOptions& options) {
  store.check_model_name(options.stored_name);
  RegistryPull(name, store, transport, options).run();
}

}  // namespace quarrel
