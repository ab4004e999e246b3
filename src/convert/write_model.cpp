#include "convert/write_model.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/counted.h"
#include "base/error.h"
#include "base/printable.h"

namespace quarrel {

namespace fs = std::filesystem;

void choose_types(std::span<PlannedTensor> tensors, const TargetType& target, Log& log) {
  struct Replaced {
    std::uint64_t count = 0;
    const PlannedTensor* first = nullptr;
  };
  std::map<std::pair<QuantType, QuantType>, Replaced> replaced;
  const bool tied = std::ranges::find(tensors, "output.weight", &PlannedTensor::name) == tensors.end();
  for (PlannedTensor& tensor : tensors) {
    if (keeps_values(tensor.name, tensor.shape.size())) continue;
    const QuantType wanted = wanted_type(target, tensor.name, tied);
    tensor.type = fitting_type(wanted, tensor.shape[0]);
    if (tensor.type == wanted) continue;
    Replaced& entry = replaced[{wanted, tensor.type}];
    if (entry.count++ == 0) entry.first = &tensor;
  }
  for (const auto& [types, entry] : replaced) {
    log.warn("{} will be {} and not {}, whose blocks do not fit the rows: '{}' has rows of {}",
             counted(entry.count, "tensor"), type_info(types.second).name, type_info(types.first).name,
             printable(entry.first->name), entry.first->shape[0]);
  }
}

void warn_if_nothing_is_gained(std::span<const PlannedTensor> tensors, const TargetType& target, Log& log) {
  std::map<QuantType, std::uint64_t> sources;  // bytes of the matrices by type
  std::uint64_t before = 0;
  std::uint64_t after = 0;
  for (const PlannedTensor& tensor : tensors) {
    if (keeps_values(tensor.name, tensor.shape.size())) continue;
    sources[tensor.source.type] += tensor.source.bytes();
    before += tensor.source.bytes();
    after += row_bytes(type_info(tensor.type), tensor.source.row * tensor.source.rows);
  }
  if (sources.empty() || after < before) return;
  const auto less = [](const auto& a, const auto& b) { return a.second < b.second; };
  const auto most = std::max_element(sources.begin(), sources.end(), less);
  if (type_info(most->first).block_weights == 1) return;  // a float type was chosen for its own sake
  log.warn("nothing is gained: the weights are {} already, and {} cannot restore what was rounded away",
           type_info(most->first).name, target.name);
}

void put_file_type(GgufWriter& writer, const TargetType& target) {
  constexpr std::uint32_t kLayoutVersion = 2;
  writer.put_u32("general.file_type", target.file_type);
  writer.put_u32("general.quantization_version", kLayoutVersion);
}

WrittenModel write_model(GgufWriter& writer, std::span<const PlannedTensor> tensors, const fs::path& target,
                         const RecodeOptions& options) {
  WrittenModel result;
  for (const PlannedTensor& tensor : tensors) {
    const std::uint64_t weights = tensor.source.row * tensor.source.rows;
    ++result.tensors;
    result.weights += weights;
    result.source_bytes += tensor.source.bytes();
    result.bytes += row_bytes(type_info(tensor.type), weights);
  }
  Recoder recoder(options, result.source_bytes);
  for (const PlannedTensor& tensor : tensors) {
    writer.add_tensor(tensor.name, tensor.type, tensor.shape, [&recoder, &tensor](std::span<std::byte> bytes) {
      recoder.recode(tensor.source, tensor.type, bytes);
    });
  }
  writer.write(target);
  return result;
}

void check_target(const fs::path& target, bool overwrite, std::span<const fs::path> inputs) {
  const std::string name = printable(target.string(), 512);
  std::error_code fault;
  const fs::file_status status = fs::status(target, fault);
  if (!fs::exists(status) && target.filename().empty()) {
    fail(ErrorKind::usage, "cannot write '{}': there is no such folder", name);
  }
  if (fs::is_directory(status)) {
    fail(ErrorKind::usage, "cannot write '{}': it is a folder", name);
  }
  if (!fs::exists(status)) return;
  for (const fs::path& input : inputs) {
    if (fs::equivalent(target, input, fault)) {
      fail(ErrorKind::usage, "cannot write '{}': it is what would be read", name);
    }
  }
  // A device or a FIFO is written to and loses nothing.
  if (!overwrite && fs::is_regular_file(status)) {
    fail(ErrorKind::usage, "'{}' already exists; --force overwrites it", name);
  }
}

}  // namespace quarrel
