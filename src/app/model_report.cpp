#include "app/model_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <type_traits>

#include "app/progress_bar.h"
#include "app/text_table.h"
#include "base/error.h"
#include "base/printable.h"
#include "base/sha256.h"
#include "model/architectures.h"
#include "model/model.h"
#include "text/tokenizer.h"

namespace quarrel {
namespace {

constexpr std::int64_t kCommonContext = 4096;
constexpr std::size_t kShownDigits = 12;

std::string range_text(const GgufNumbers& numbers) {
  if (numbers.count == 0) return {};
  std::int64_t least = numbers.as_int(0);
  std::int64_t most = least;
  for (std::uint64_t i = 1; i < numbers.count; ++i) {
    least = std::min(least, numbers.as_int(i));
    most = std::max(most, numbers.as_int(i));
  }
  return least == most ? fmt::format("{}", least) : fmt::format("{} to {}", least, most);
}

// A hyper-parameter as text, whatever kind the file gives it.
std::string hyper(const GgufFile& file, const std::string& architecture, const char* name) {
  const GgufEntry* entry = file.find(architecture + "." + name);
  if (entry == nullptr) return {};
  return std::visit(
      [](const auto& value) -> std::string {
        using Value = std::decay_t<decltype(value)>;
        if constexpr (std::is_same_v<Value, GgufNumbers>) return range_text(value);
        if constexpr (std::is_arithmetic_v<Value>) return fmt::format("{}", value);
        return {};
      },
      entry->value);
}

std::string text_or_empty(const GgufFile& file, std::string_view key) {
  const GgufEntry* entry = file.find(key);
  if (entry == nullptr) return {};
  const auto* text = std::get_if<std::string_view>(&entry->value);
  return text == nullptr ? std::string() : std::string(*text);
}

void add_types(const GgufFile& file, ModelReport& report) {
  std::map<QuantType, TypeShare> shares;
  for (const GgufTensor& tensor : file.tensors()) {
    TypeShare& share = shares[tensor.type];
    share.type = type_info(tensor.type).name;
    ++share.tensors;
    share.bytes += tensor.bytes;
    report.weight_bytes += tensor.bytes;
  }
  for (const auto& [type, share] : shares) report.types.push_back(share);
  std::stable_sort(report.types.begin(), report.types.end(),
                   [](const TypeShare& a, const TypeShare& b) { return a.bytes > b.bytes; });
}

void add_tokenizer(const GgufFile& file, Log& log, ModelReport& report) {
  try {
    const auto tokenizer = Tokenizer::load(file, log);
    report.vocabulary = tokenizer->size();
    report.tokenizer = tokenizer->algorithm();
    if (!tokenizer->pre_tokenizer().empty()) report.tokenizer += fmt::format(" ({})", tokenizer->pre_tokenizer());
  } catch (const Error& error) {
    report.tokenizer_problem = error.what();
    const GgufEntry* tokens = file.find("tokenizer.ggml.tokens");
    const auto* list = tokens == nullptr ? nullptr : std::get_if<std::vector<std::string_view>>(&tokens->value);
    if (list != nullptr) report.vocabulary = list->size();
  }
}

KvNeed kv_need(const std::vector<KvGroup>& groups, std::int64_t context) {
  std::uint64_t values = 0;
  for (const KvGroup& group : groups) {
    values += static_cast<std::uint64_t>(group.layers) * static_cast<std::uint64_t>(group.kv_heads) *
              static_cast<std::uint64_t>(group.key_dim + group.value_dim) * static_cast<std::uint64_t>(context);
  }
  return {.context = context, .f16_bytes = values * 2, .f32_bytes = values * 4};
}

void add_spec(const GgufFile& file, ModelReport& report) {
  try {
    const ModelSpec spec = read_spec(file);
    const std::vector<KvGroup> groups = kv_groups_of(spec);
    if (!groups.empty() && spec.has_head) {
      report.kv.push_back(kv_need(groups, spec.context_length));
      if (spec.context_length != kCommonContext) report.kv.push_back(kv_need(groups, kCommonContext));
    }
    if (file.tensors().empty()) report.problem = "the file holds no tensors, only a vocabulary";
  } catch (const Error& error) {
    report.problem = error.what();
  }
}

nlohmann::ordered_json sampling_json(const RecommendedSampling& sampling) {
  if (sampling.origin.empty()) return nullptr;
  nlohmann::ordered_json value{{"origin", sampling.origin}};
  for (const auto& [name, text] : sampling.list()) value[std::string(name)] = nlohmann::ordered_json::parse(text);
  if (!sampling.stop.empty()) value["stop"] = sampling.stop;
  return value;
}

}  // namespace

double ModelReport::bits_per_weight() const {
  return parameters == 0 ? 0.0 : static_cast<double>(weight_bytes) * 8.0 / static_cast<double>(parameters);
}

ModelReport make_report(const GgufFile& file, std::string_view store_parameters, Log& log) {
  ModelReport report;
  report.file = file.path().string();
  report.file_bytes = file.file_bytes();
  report.parts = file.part_count();
  report.gguf_version = file.version();
  report.name = text_or_empty(file, "general.name");
  report.architecture = text_or_empty(file, "general.architecture");
  report.parameters = parameter_count(file);
  report.tensors = file.tensors().size();
  report.context = hyper(file, report.architecture, "context_length");
  report.layers = hyper(file, report.architecture, "block_count");
  report.width = hyper(file, report.architecture, "embedding_length");
  report.feed_forward = hyper(file, report.architecture, "feed_forward_length");
  report.heads = hyper(file, report.architecture, "attention.head_count");
  report.kv_heads = hyper(file, report.architecture, "attention.head_count_kv");
  report.experts = hyper(file, report.architecture, "expert_count");
  add_types(file, report);
  add_tokenizer(file, log, report);
  add_spec(file, report);
  const std::string source = text_or_empty(file, "tokenizer.chat_template");
  if (!source.empty()) report.template_sha256 = sha256(source);
  report.sampling = read_recommended_sampling(file, store_parameters, log);
  return report;
}

nlohmann::ordered_json report_json(const ModelReport& report) {
  auto types = nlohmann::ordered_json::array();
  for (const TypeShare& share : report.types) {
    types.push_back({{"type", share.type}, {"tensors", share.tensors}, {"bytes", share.bytes}});
  }
  auto kv = nlohmann::ordered_json::array();
  for (const KvNeed& need : report.kv) {
    kv.push_back({{"context", need.context}, {"f16_bytes", need.f16_bytes}, {"f32_bytes", need.f32_bytes}});
  }
  nlohmann::ordered_json value{{"file", report.file},
                               {"file_bytes", report.file_bytes},
                               {"parts", report.parts},
                               {"gguf_version", report.gguf_version},
                               {"name", report.name},
                               {"architecture", report.architecture},
                               {"runs", report.problem.empty()},
                               {"problem", report.problem},
                               {"parameters", report.parameters},
                               {"tensors", report.tensors},
                               {"weight_bytes", report.weight_bytes},
                               {"bits_per_weight", report.bits_per_weight()},
                               {"context_length", report.context},
                               {"layers", report.layers},
                               {"width", report.width},
                               {"feed_forward_length", report.feed_forward},
                               {"heads", report.heads},
                               {"kv_heads", report.kv_heads},
                               {"experts", report.experts},
                               {"vocabulary", report.vocabulary},
                               {"tokenizer", report.tokenizer},
                               {"tokenizer_problem", report.tokenizer_problem},
                               {"types", std::move(types)},
                               {"kv_cache", std::move(kv)}};
  // Whole numbers as numbers; what differs from layer to layer stays a text.
  for (const char* key : {"context_length", "layers", "width", "feed_forward_length", "heads", "kv_heads", "experts"}) {
    const std::string text = value[key].get<std::string>();
    const bool digits = !text.empty() && text.size() < 19 && text.find_first_not_of("0123456789") == std::string::npos;
    if (digits) value[key] = std::stoll(text);
    if (text.empty()) value[key] = nullptr;
  }
  value["template_sha256"] = report.template_sha256 ? nlohmann::ordered_json(*report.template_sha256) : nullptr;
  value["sampling"] = sampling_json(report.sampling);
  return value;
}

std::string report_text(const ModelReport& report) {
  std::string text;
  const auto line = [&](const char* name, const std::string& value) {
    if (!value.empty()) text += fmt::format("{:<20}{}\n", name, value);
  };
  line("file", printable(report.file, 512));
  line("size", fmt::format("{} ({} bytes{})", human_bytes(report.file_bytes), report.file_bytes,
                           report.parts > 1 ? fmt::format(" in {} parts", report.parts) : ""));
  line("format", fmt::format("GGUF version {}", report.gguf_version));
  line("name", printable(report.name));
  line("architecture", report.architecture.empty() ? "unknown" : printable(report.architecture));
  line("can be run", report.problem.empty() ? "yes" : "no: " + report.problem);
  line("parameters",
       fmt::format("{:.1f} million in {} tensors", static_cast<double>(report.parameters) / 1e6, report.tensors));
  line("bits per weight", report.parameters == 0 ? "" : fmt::format("{:.2f}", report.bits_per_weight()));
  line("context", report.context);
  line("layers", report.layers);
  line("width", report.width);
  line("feed-forward", report.feed_forward);
  line("heads", report.heads);
  line("KV heads", report.kv_heads);
  line("experts", report.experts);
  line("vocabulary", fmt::format("{} tokens", report.vocabulary));
  line("tokenizer", report.tokenizer_problem.empty() ? report.tokenizer : "unusable: " + report.tokenizer_problem);
  line("chat template",
       report.template_sha256 ? "SHA-256 " + report.template_sha256->substr(0, kShownDigits) : std::string("none"));
  line("sampling", report.sampling.summary());
  if (!report.types.empty()) {
    using Side = TextTable::Side;
    TextTable table({{"TYPE"}, {"TENSORS", Side::right}, {"SIZE", Side::right}, {"SHARE", Side::right}});
    for (const TypeShare& share : report.types) {
      const double part =
          static_cast<double>(share.bytes) / static_cast<double>(std::max<std::uint64_t>(1, report.weight_bytes));
      table.add_row({std::string(share.type), fmt::format("{}", share.tensors), human_bytes(share.bytes),
                     fmt::format("{:.1f}%", part * 100.0)});
    }
    text += "\n" + table.text();
  }
  if (!report.kv.empty() && report.weight_bytes > 0) {
    using Side = TextTable::Side;
    TextTable table({{"MEMORY FOR"},
                     {"WEIGHTS", Side::right},
                     {"KV F16", Side::right},
                     {"SUM", Side::right},
                     {"KV F32", Side::right},
                     {"SUM", Side::right}});
    for (const KvNeed& need : report.kv) {
      table.add_row({fmt::format("{} tokens", need.context), human_bytes(report.weight_bytes),
                     human_bytes(need.f16_bytes), human_bytes(report.weight_bytes + need.f16_bytes),
                     human_bytes(need.f32_bytes), human_bytes(report.weight_bytes + need.f32_bytes)});
    }
    text += "\n" + table.text();
  }
  return text;
}

}  // namespace quarrel
