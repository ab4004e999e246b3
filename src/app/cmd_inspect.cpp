// quarrel inspect: what a GGUF file is, its metadata and its tensors.

#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <type_traits>

#include <CLI/CLI.hpp>

#include "app/commands.h"
#include "app/input.h"
#include "app/model_report.h"
#include "app/terminal.h"
#include "app/text_table.h"
#include "base/printable.h"
#include "store/store.h"

namespace quarrel {
namespace {

struct InspectOptions {
  std::string model;
  bool tensors = false;
  bool metadata = false;
  bool json = false;
};

constexpr std::uint64_t kShownValues = 8;

std::string number_text(const GgufNumbers& numbers, std::uint64_t index) {
  const bool real = numbers.kind == GgufKind::f32 || numbers.kind == GgufKind::f64;
  return real ? fmt::format("{}", numbers.as_double(index)) : fmt::format("{}", numbers.as_int(index));
}

std::string list_text(std::uint64_t count, std::string_view kind, const std::vector<std::string>& first) {
  return fmt::format("{} x {}: {}{}", count, kind, fmt::join(first, ", "), count > first.size() ? ", ..." : "");
}

std::string value_text(const GgufEntry& entry) {
  return std::visit(
      [](const auto& value) -> std::string {
        using Value = std::decay_t<decltype(value)>;
        std::vector<std::string> first;
        if constexpr (std::is_same_v<Value, GgufNumbers>) {
          for (std::uint64_t i = 0; i < std::min(value.count, kShownValues); ++i)
            first.push_back(number_text(value, i));
          return list_text(value.count, kind_name(value.kind), first);
        } else if constexpr (std::is_same_v<Value, std::vector<std::string_view>>) {
          for (std::uint64_t i = 0; i < std::min<std::uint64_t>(value.size(), kShownValues); ++i) {
            first.push_back("'" + printable(value[i], 32) + "'");
          }
          return list_text(value.size(), kind_name(GgufKind::string), first);
        } else if constexpr (std::is_same_v<Value, std::string_view>) {
          return printable(value, 100);
        } else {
          return fmt::format("{}", value);
        }
      },
      entry.value);
}

// Scalars whole, arrays by their length and first values: a vocabulary would drown the rest.
nlohmann::ordered_json value_json(const GgufEntry& entry) {
  nlohmann::ordered_json result{{"key", entry.key}, {"kind", kind_name(entry.kind)}};
  std::visit(
      [&](const auto& value) {
        using Value = std::decay_t<decltype(value)>;
        if constexpr (std::is_same_v<Value, GgufNumbers> || std::is_same_v<Value, std::vector<std::string_view>>) {
          auto first = nlohmann::ordered_json::array();
          if constexpr (std::is_same_v<Value, GgufNumbers>) {
            const bool real = value.kind == GgufKind::f32 || value.kind == GgufKind::f64;
            for (std::uint64_t i = 0; i < std::min(value.count, kShownValues); ++i) {
              first.push_back(real ? nlohmann::ordered_json(value.as_double(i))
                                   : nlohmann::ordered_json(value.as_int(i)));
            }
            result["of"] = kind_name(value.kind);
            result["count"] = value.count;
          } else {
            for (std::size_t i = 0; i < std::min<std::size_t>(value.size(), kShownValues); ++i)
              first.push_back(value[i]);
            result["of"] = kind_name(GgufKind::string);
            result["count"] = value.size();
          }
          result["first"] = std::move(first);
        } else {
          result["value"] = value;
        }
      },
      entry.value);
  return result;
}

std::string shape_text(const GgufTensor& tensor) {
  if (tensor.dimensions == 0) return "1";
  return fmt::format("{}", fmt::join(tensor.shape.begin(), tensor.shape.begin() + tensor.dimensions, " x "));
}

std::vector<const GgufTensor*> in_file_order(const GgufFile& file) {
  std::vector<const GgufTensor*> order;
  for (const GgufTensor& tensor : file.tensors()) order.push_back(&tensor);
  std::stable_sort(order.begin(), order.end(), [](const GgufTensor* a, const GgufTensor* b) {
    return std::pair(a->part, a->offset) < std::pair(b->part, b->offset);
  });
  return order;
}

// Calls `gap(bytes)` where bytes between two tensors belong to neither, and `tensor(t)` for each.
template <typename OnTensor, typename OnGap>
void walk_tensors(const GgufFile& file, OnTensor&& on_tensor, OnGap&& on_gap) {
  const GgufTensor* before = nullptr;
  for (const GgufTensor* tensor : in_file_order(file)) {
    if (before != nullptr && before->part == tensor->part && before->offset + before->bytes < tensor->offset) {
      on_gap(tensor->offset - before->offset - before->bytes);
    }
    on_tensor(*tensor);
    before = tensor;
  }
}

std::string tensors_text(const GgufFile& file) {
  using Side = TextTable::Side;
  TextTable table(
      {{"TENSOR"}, {"TYPE"}, {"SHAPE"}, {"OFFSET", Side::right}, {"BYTES", Side::right}, {"PART", Side::right}});
  walk_tensors(
      file,
      [&](const GgufTensor& tensor) {
        table.add_row({printable(tensor.name), std::string(type_info(tensor.type).name), shape_text(tensor),
                       fmt::format("{}", tensor.offset), fmt::format("{}", tensor.bytes),
                       fmt::format("{}", tensor.part + 1)});
      },
      [&](std::uint64_t bytes) { table.add_line(fmt::format("gap of {} bytes", bytes)); });
  return table.text();
}

nlohmann::ordered_json tensors_json(const GgufFile& file) {
  auto list = nlohmann::ordered_json::array();
  std::uint64_t gap = 0;
  walk_tensors(
      file,
      [&](const GgufTensor& tensor) {
        auto shape = nlohmann::ordered_json::array();
        for (std::uint32_t i = 0; i < tensor.dimensions; ++i) shape.push_back(tensor.shape[i]);
        list.push_back({{"name", tensor.name},
                        {"type", type_info(tensor.type).name},
                        {"shape", std::move(shape)},
                        {"offset", tensor.offset},
                        {"bytes", tensor.bytes},
                        {"part", tensor.part + 1},
                        {"gap_before", std::exchange(gap, 0)}});
      },
      [&](std::uint64_t bytes) { gap = bytes; });
  return list;
}

std::string metadata_text(const GgufFile& file) {
  TextTable table({{"KEY"}, {"KIND"}, {"VALUE"}});
  for (const GgufEntry& entry : file.entries()) {
    table.add_row({printable(entry.key), std::string(kind_name(entry.kind)), value_text(entry)});
  }
  return table.text();
}

int inspect(const InspectOptions& options, Log& log) {
  const ResolvedModel model = ModelStore(StorePaths::from_environment()).resolve(options.model);
  const GgufFile file = GgufFile::open(model.path);
  const ModelReport report = make_report(file, model.params.value_or(""), log);
  if (options.json) {
    nlohmann::ordered_json value = report_json(report);
    if (options.metadata) {
      auto entries = nlohmann::ordered_json::array();
      for (const GgufEntry& entry : file.entries()) entries.push_back(value_json(entry));
      value["metadata"] = std::move(entries);
    }
    if (options.tensors) value["tensor_list"] = tensors_json(file);
    write_output(dump_json(value) + "\n");
    return 0;
  }
  write_output(report_text(report));
  if (options.metadata) write_output("\n" + metadata_text(file));
  if (options.tensors) write_output("\n" + tensors_text(file));
  return 0;
}

}  // namespace

void add_inspect(CLI::App& app, CommandContext& context) {
  CLI::App* command = app.add_subcommand("inspect", "Show what a GGUF file holds");
  command->alias("show");
  auto options = std::make_shared<InspectOptions>();
  command->add_option("MODEL", options->model, "A GGUF file or the name of a model")->required();
  command->add_flag("--tensors", options->tensors, "The table of tensors in file order, gaps included");
  command->add_flag("--metadata", options->metadata, "All keys with kind and value; arrays by their first values");
  command->add_flag("--json", options->json, "One JSON object");
  command->footer("Examples:\n  quarrel inspect default\n  quarrel inspect model.gguf --tensors --json");
  command->callback(
      [options, &context] { context.run = [options, &context] { return inspect(*options, context.log); }; });
}

}  // namespace quarrel
