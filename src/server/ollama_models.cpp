#include "server/ollama_models.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/printable.h"
#include "base/utc_time.h"
#include "gguf/file.h"
#include "server/fields.h"
#include "server/model_abilities.h"
#include "server/model_tag.h"
#include "server/ollama_request.h"
#include "store/model_description.h"

namespace quarrel {
namespace {

using http::Exchange;
using std::chrono::system_clock;

constexpr std::string_view kTemplateKey = "tokenizer.chat_template";
constexpr std::size_t kShortArray = 16;                        // longer ones are shown only where all is wanted
constexpr auto kForever = std::chrono::hours(24 * 365 * 200);  // a clock of nanoseconds ends in the year 2262

Json details_json(const ModelDescription& model) {
  return {{"parent_model", ""},
          {"format", "gguf"},
          {"family", model.family},
          {"families", Json::array({model.family})},
          {"parameter_size", model.parameters},
          {"quantization_level", model.quantisation}};
}

Json array_json(const GgufNumbers& numbers) {
  Json list = Json::array();
  for (std::uint64_t i = 0; i < numbers.count; ++i) {
    switch (numbers.kind) {
      case GgufKind::f32:
      case GgufKind::f64: list.push_back(numbers.as_double(i)); break;
      case GgufKind::boolean: list.push_back(numbers.as_int(i) != 0); break;
      default: list.push_back(numbers.as_int(i)); break;
    }
  }
  return list;
}

// A value of the file; long lists are empty unless all is wanted.
Json value_json(const GgufValue& value, bool verbose) {
  if (const auto* numbers = std::get_if<GgufNumbers>(&value)) {
    return verbose || numbers->count <= kShortArray ? array_json(*numbers) : Json::array();
  }
  if (const auto* texts = std::get_if<std::vector<std::string_view>>(&value)) {
    return verbose || texts->size() <= kShortArray ? Json(*texts) : Json::array();
  }
  if (const auto* text = std::get_if<std::string_view>(&value)) return std::string(*text);
  if (const auto* truth = std::get_if<bool>(&value)) return *truth;
  if (const auto* real = std::get_if<double>(&value)) return *real;
  if (const auto* whole = std::get_if<std::int64_t>(&value)) return *whole;
  return std::get<std::uint64_t>(value);
}

Json info_json(const GgufFile& file, const ModelDescription& model, bool verbose) {
  Json info = Json::object();
  for (const GgufEntry& entry : file.entries()) {
    if (entry.key == kTemplateKey) continue;  // it has a field of its own
    info[std::string(entry.key)] = value_json(entry.value, verbose);
  }
  info["general.parameter_count"] = model.parameter_count;
  return info;
}

std::string text_of(const GgufFile& file, std::string_view key) {
  const GgufEntry* entry = file.find(key);
  const bool is_text = entry != nullptr && entry->kind == GgufKind::string;
  return is_text ? std::string(std::get<std::string_view>(entry->value)) : "";
}

// "temperature 0.7", a line each, from what the store keeps beside the model.
std::string parameter_lines(const ResolvedModel& model, std::string_view before) {
  const Json values = Json::parse(model.params.value_or("{}"), nullptr, false);
  std::string lines;
  if (!values.is_object()) return lines;
  for (const auto& [name, value] : values.items()) {
    for (const Json& each : value.is_array() ? value : Json::array({value})) {
      lines += fmt::format("{}{}{:<30} {}", lines.empty() ? "" : "\n", before, name, compact_json(each));
    }
  }
  return lines;
}

// What would make this model again.
std::string modelfile(const std::string& name, const ResolvedModel& model, const std::string& chat_template) {
  std::string text = fmt::format("FROM {}\n", name);
  if (!chat_template.empty()) text += fmt::format("TEMPLATE \"\"\"{}\"\"\"\n", chat_template);
  if (model.system) text += fmt::format("SYSTEM \"\"\"{}\"\"\"\n", *model.system);
  const std::string parameters = parameter_lines(model, "PARAMETER ");
  return parameters.empty() ? text : text + parameters + "\n";
}

// When it will be unloaded, if nobody asks for it meanwhile.
system_clock::time_point expiry(const ModelRegistry::Status& status) {
  const auto now = system_clock::now();
  if (status.expires) return now + std::chrono::duration_cast<system_clock::duration>(*status.expires - Clock::now());
  const bool stays = !status.in_use || status.keep_alive.count() < 0;
  return now + (stays ? kForever : std::min<system_clock::duration>(status.keep_alive, kForever));
}

// Of one that is loaded, whatever has become of its file since.
Json details_of_loaded(const ModelRegistry::Status& status) {
  try {
    return details_json(describe_file(status.path));
  } catch (const Error&) {
    return details_json(ModelDescription{});
  }
}

Json listed_json(const OfferedModel& model, const std::filesystem::path& path) {
  const GgufFile file = GgufFile::open(path);
  const ModelDescription description = describe_file(file);
  return {{"name", with_tag(model.name)},
          {"model", with_tag(model.name)},
          {"modified_at", rfc3339(modified_time(path))},
          {"size", description.bytes},
          {"digest", model_digest(path)},
          {"details", details_json(description)},
          {"capabilities", read_abilities(file).capabilities}};
}

}  // namespace

void require_stores(const Service& service) {
  if (service.offers_stores()) return;
  throw invalid_request("unsupported",
                        "this server offers the models that it was started with: started without names it takes more");
}

void require_may_make(const Service& service, const std::string& name, const Caller& caller) {
  const auto refuse = [](const std::string& message) {
    throw ApiError(403, "permission_error", "model_not_allowed", message, "model");
  };
  // By its other name, if neither means another model now: what is not there yet will have both.
  const auto is_free = [&](const std::string& each) {
    const std::optional<OfferedModel> meant = service.look_up(each, {});
    return !meant || service.may_use(caller, *meant);
  };
  const auto may_make = [&](const std::string& each) {
    if (caller.may_use(each)) return true;
    const std::string other(other_name(each));
    return !other.empty() && caller.may_use(other) && is_free(each) && is_free(other);
  };
  if (!may_make(name)) {
    refuse(fmt::format("this key may not make or replace a model '{}': it is for other models", printable(name)));
  }
  for (const std::string& replaced : service.store().replaced_names(name)) {
    if (may_make(replaced)) continue;
    refuse(
        fmt::format("this key may not make a model '{}': it would replace one that the key is not for, since letter "
                    "case and '.gguf' make no difference; choose another name",
                    printable(name)));
  }
}

OfferedModel find_ollama_model(const Service& service, const std::string& name, const Caller& caller) {
  if (name.empty()) return service.find(name, caller);
  if (std::optional<OfferedModel> found = service.look_up(name, caller)) return std::move(*found);
  throw ApiError(404, "not_found_error", "model_not_found", fmt::format("model '{}' not found", printable(name)),
                 "model");
}

void ollama_tags(Service& service, const std::shared_ptr<Exchange>& exchange) {
  Json list = Json::array();
  for (const OfferedModel& model : service.models(*caller_of(*exchange))) {
    try {
      list.push_back(listed_json(model, service.resolve(model).path));
    } catch (const std::exception&) {
      continue;  // it went a moment ago, or cannot be read: the others are there
    }
  }
  exchange->respond({.body = compact_json({{"models", list}})});
}

void ollama_show(Service& service, const std::shared_ptr<Exchange>& exchange) {
  const OllamaModelRequest request = read_ollama_model(parse_body(exchange->request().body));
  const OfferedModel model = find_ollama_model(service, request.model, *caller_of(*exchange));
  const ResolvedModel resolved = service.resolve(model);
  const GgufFile file = GgufFile::open(resolved.path);
  const ModelDescription description = describe_file(file);
  // What Ollama's store keeps is not written in Jinja, and is not used.
  const bool has_template = resolved.place == ModelPlace::quarrel && resolved.template_text;
  const std::string chat_template = has_template ? *resolved.template_text : text_of(file, kTemplateKey);
  Json json{{"modelfile", modelfile(model.name, resolved, chat_template)},
            {"parameters", parameter_lines(resolved, "")},
            {"template", chat_template},
            {"details", details_json(description)},
            {"model_info", info_json(file, description, request.verbose)},
            {"capabilities", read_abilities(file).capabilities},
            {"modified_at", rfc3339(modified_time(resolved.path))}};
  const std::string license = resolved.license.empty() ? text_of(file, "general.license") : resolved.license;
  if (!license.empty()) json["license"] = license;
  if (resolved.system) json["system"] = *resolved.system;
  exchange->respond({.body = compact_json(json)});
}

void ollama_ps(Service& service, const std::shared_ptr<Exchange>& exchange) {
  Json list = Json::array();
  const std::shared_ptr<const Caller> caller = caller_of(*exchange);
  for (const ModelRegistry::Status& status : service.registry().list()) {
    if (status.state != ModelRegistry::State::ready || !service.may_use(*caller, status.name)) continue;
    list.push_back({{"name", with_tag(status.name)},
                    {"model", with_tag(status.name)},
                    {"size", status.bytes},
                    {"digest", model_digest(status.path)},
                    {"details", details_of_loaded(status)},
                    {"expires_at", rfc3339(expiry(status))},
                    {"size_vram", status.has_device_memory ? status.bytes : 0},
                    {"context_length", status.context}});
    if (!status.context_limit.empty()) list.back()["context_limit"] = status.context_limit;
  }
  exchange->respond({.body = compact_json({{"models", list}})});
}

void ollama_delete(Service& service, const std::shared_ptr<Exchange>& exchange) {
  const OllamaModelRequest request = read_ollama_model(parse_body(exchange->request().body));
  const OfferedModel model = find_ollama_model(service, request.model, *caller_of(*exchange));
  if (service.resolve(model).place == ModelPlace::file) {
    throw invalid_field("model", fmt::format("'{}' is a file that the server was started with: it is not removed over "
                                             "the network",
                                             model.name));
  }
  service.store().remove(model.source);
  service.stores_changed();
  service.registry().unload(model.name);
  exchange->respond({});
}

void ollama_copy(Service& service, const std::shared_ptr<Exchange>& exchange) {
  const OllamaCopyRequest request = read_ollama_copy(parse_body(exchange->request().body));
  const std::string further = ModelStore::further_name(std::string(without_tag(request.destination)));
  require_may_make(service, further, *caller_of(*exchange));
  const OfferedModel model = find_ollama_model(service, request.source, *caller_of(*exchange));
  require_stores(service);
  service.store().add_name(service.resolve(model), further);
  service.replaced(further);
  exchange->respond({});
}

}  // namespace quarrel
