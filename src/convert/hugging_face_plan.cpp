#include "convert/hugging_face_plan.h"

#include <string_view>
#include <unordered_set>
#include <utility>

#include "base/error.h"
#include "base/printable.h"

namespace quarrel {
namespace {

std::string with_layer(std::string_view pattern, std::uint32_t layer) {
  const std::size_t at = pattern.find("{}");
  if (at == std::string_view::npos) return std::string(pattern);
  return fmt::format("{}{}{}", pattern.substr(0, at), layer, pattern.substr(at + 2));
}

class Planner {
 public:
  Planner(const HuggingFaceConfig& config, const SafetensorsModel& model) : config_(config), model_(model) {
    const std::string_view prefix = config.family->prefix;
    const std::string first = fmt::format("{}{}", prefix, config.family->tensors.front().theirs);
    if (!prefix.empty() && model.find(first).tensor != nullptr) prefix_ = prefix;
  }

  std::vector<PlannedTensor> plan() && {
    const auto of_a_layer = [](const TensorRule& rule) { return rule.ours.find("{}") != std::string_view::npos; };
    for (const TensorRule& rule : config_.family->tensors) {
      if (!of_a_layer(rule)) add(rule, 0);
    }
    for (std::uint32_t layer = 0; layer < config_.layers; ++layer) {
      for (const TensorRule& rule : config_.family->tensors) {
        if (of_a_layer(rule)) add(rule, layer);
      }
    }
    for (const SafetensorsModel::Entry& entry : model_.entries()) {
      const std::string& name = entry.tensor->name;
      if (used_.contains(name) || is_ignored_tensor(name)) continue;
      fail(ErrorKind::bad_file, "tensor '{}' has no place in a model of class {} with {} layers", printable(name),
           config_.family->class_name, config_.layers);
    }
    return std::move(tensors_);
  }

 private:
  void add(const TensorRule& rule, std::uint32_t layer) {
    const std::string name = prefix_ + with_layer(rule.theirs, layer);
    const SafetensorsModel::Entry entry = model_.find(name);
    if (entry.tensor == nullptr) {
      const bool replaced = rule.role == RowRole::output && config_.tied;
      if (rule.optional || replaced) return;
      fail(ErrorKind::bad_file, "the model has no tensor '{}', which one of class {} needs", name,
           config_.family->class_name);
    }
    used_.insert(entry.tensor->name);
    if (rule.role == RowRole::output && config_.tied) return;
    tensors_.push_back(planned(rule, with_layer(rule.ours, layer), entry));
  }

  PlannedTensor planned(const TensorRule& rule, std::string name, const SafetensorsModel::Entry& entry) const {
    const SafetensorsTensor& tensor = *entry.tensor;
    if (!tensor.type) {
      fail(ErrorKind::unsupported, "tensor '{}' has the dtype {}; F32, F16 and BF16 are supported",
           printable(tensor.name), tensor.dtype);
    }
    PlannedTensor result{.name = std::move(name), .shape = {tensor.shape.rbegin(), tensor.shape.rend()}};
    TensorSource& source = result.source;
    source = {.name = tensor.name,
              .type = *tensor.type,
              .file = entry.file->file(),
              .offset = tensor.offset,
              .data = entry.file->data(tensor)};
    if (rule.role == RowRole::positions) cut_positions(tensor, result.shape);
    source.row = result.shape.empty() ? 1 : result.shape[0];
    source.rows = 1;
    for (std::size_t i = 1; i < result.shape.size(); ++i) source.rows *= result.shape[i];
    const bool rotates = rule.role == RowRole::query || rule.role == RowRole::key;
    if (rotates && config_.family->rotates_pairs) reorder(rule, tensor, source);
    return result;
  }

  void cut_positions(const SafetensorsTensor& tensor, std::vector<std::uint64_t>& shape) const {
    if (shape.size() != 2 || shape[1] < config_.context) {
      fail(ErrorKind::bad_file, "tensor '{}' has the shape [{}], but {} positions are needed", printable(tensor.name),
           fmt::join(tensor.shape, ", "), config_.context);
    }
    shape[1] = config_.context;
  }

  void reorder(const TensorRule& rule, const SafetensorsTensor& tensor, TensorSource& source) const {
    if (tensor.shape.size() == 1) std::swap(source.row, source.rows);  // a bias has a value a row
    const std::uint64_t heads = rule.role == RowRole::query ? config_.heads : config_.kv_heads;
    if (source.rows != heads * config_.head) {
      fail(ErrorKind::bad_file, "tensor '{}' has {} rows, but {} heads of {} are needed", printable(tensor.name),
           source.rows, heads, config_.head);
    }
    source.order = RowOrder::halves_to_pairs;
    source.head = config_.head;
  }

  const HuggingFaceConfig& config_;
  const SafetensorsModel& model_;
  std::string prefix_;
  std::unordered_set<std::string_view> used_;
  std::vector<PlannedTensor> tensors_;
};

}  // namespace

std::vector<PlannedTensor> plan_tensors(const HuggingFaceConfig& config, const SafetensorsModel& model) {
  return Planner(config, model).plan();
}

}  // namespace quarrel
