#include "convert/convert.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "base/printable.h"
#include "convert/hugging_face_config.h"
#include "convert/hugging_face_plan.h"
#include "convert/hugging_face_tokenizer.h"
#include "convert/safetensors.h"

namespace quarrel {
namespace {

namespace fs = std::filesystem;

void check_folder(const fs::path& folder) {
  std::error_code fault;
  const fs::file_status status = fs::status(folder, fault);
  const std::string name = printable(folder.string(), 512);
  if (!fs::exists(status)) fail(ErrorKind::not_found, "there is no folder '{}'", name);
  if (!fs::is_directory(status)) {
    fail(ErrorKind::usage, "'{}' is not a folder; a folder with config.json and safetensors files is wanted", name);
  }
}

const TargetType& stored_type(const std::vector<PlannedTensor>& tensors) {
  std::map<QuantType, std::uint64_t> bytes;
  for (const PlannedTensor& tensor : tensors) bytes[tensor.source.type] += tensor.source.bytes();
  const auto less = [](const auto& a, const auto& b) { return a.second < b.second; };
  const auto most = std::max_element(bytes.begin(), bytes.end(), less);
  return find_target_type(type_info(most->first).name);
}

std::vector<fs::path> files_of(const SafetensorsModel& model) {
  std::set<fs::path> paths;
  for (const SafetensorsModel::Entry& entry : model.entries()) paths.insert(entry.file->file()->path());
  return {paths.begin(), paths.end()};
}

// "models/llama/" is called llama.
std::string name_of(const fs::path& folder) {
  std::error_code fault;
  const fs::path whole = fs::weakly_canonical(folder, fault);
  return printable((fault ? folder : whole).filename().string());
}

std::uint32_t vocabulary_rows(const std::vector<PlannedTensor>& tensors) {
  constexpr std::uint64_t kMostRows = 1u << 24;
  const auto table = std::ranges::find(tensors, "token_embd.weight", &PlannedTensor::name);
  if (table == tensors.end() || table->shape.size() != 2 || table->shape[1] == 0 || table->shape[1] > kMostRows) {
    fail(ErrorKind::bad_file, "the table of token embeddings has no usable shape");
  }
  return static_cast<std::uint32_t>(table->shape[1]);
}

}  // namespace

ConvertedModel convert_folder(const fs::path& folder, const fs::path& target, const ConvertOptions& options, Log& log) {
  check_folder(folder);
  const HuggingFaceConfig config = HuggingFaceConfig::read(folder, log);
  const SafetensorsModel model = SafetensorsModel::open(folder);
  check_target(target, options.overwrite, files_of(model));
  std::vector<PlannedTensor> tensors = plan_tensors(config, model);
  const TargetType& type = options.type != nullptr ? *options.type : stored_type(tensors);
  if (!config.rope_divisors.empty()) {
    const std::uint64_t count = config.rope_divisors.size();
    const auto* data = reinterpret_cast<const std::byte*>(config.rope_divisors.data());
    const TensorSource source{.name = "rope_freqs", .row = count, .rows = 1, .data = data};
    tensors.push_back({.name = "rope_freqs.weight", .shape = {count}, .source = source});
  }
  choose_types(tensors, type, log);

  GgufWriter writer;
  writer.put_string("general.architecture", config.family->architecture);
  writer.put_string("general.name", options.name.empty() ? name_of(folder) : options.name);
  put_file_type(writer, type);
  config.put(writer);
  const std::uint32_t rows = vocabulary_rows(tensors);
  writer.put_u32(fmt::format("{}.vocab_size", config.family->architecture), rows);
  put_tokenizer(folder, rows, writer, log);
  const WrittenModel written = write_model(writer, tensors, target, options.recode);
  return {std::string(config.family->architecture), std::string(type.name), written};
}

}  // namespace quarrel
