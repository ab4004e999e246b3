#include "convert/quantize.h"

#include <set>

#include "base/error.h"
#include "base/printable.h"

namespace quarrel {
namespace {

namespace fs = std::filesystem;

PlannedTensor planned(const GgufFile& file, const GgufTensor& tensor) {
  PlannedTensor result{.name = std::string(tensor.name),
                       .shape = {tensor.shape.begin(), tensor.shape.begin() + tensor.dimensions},
                       .type = tensor.type};
  result.source = {.name = tensor.name,
                   .type = tensor.type,
                   .row = tensor.shape[0],
                   .rows = tensor.elements() / tensor.shape[0],
                   .file = file.file_of(tensor),
                   .offset = tensor.offset,
                   .data = file.data(tensor)};
  return result;
}

// What this writer says itself, and where the parts of a split model were.
bool is_replaced(std::string_view key) {
  return key.starts_with("split.") || key == "general.file_type" || key == "general.quantization_version";
}

std::vector<fs::path> files_of(const GgufFile& file) {
  std::set<fs::path> paths = {file.path()};
  for (const GgufTensor& tensor : file.tensors()) {
    if (const MappedFile* part = file.file_of(tensor)) paths.insert(part->path());
  }
  return {paths.begin(), paths.end()};
}

}  // namespace

WrittenModel quantize_file(const GgufFile& file, const fs::path& target, const TargetType& type,
                           const QuantizeOptions& options, Log& log) {
  if (file.tensors().empty()) {
    fail(ErrorKind::bad_file, "'{}' has no tensors: there is nothing to quantise",
         printable(file.path().string(), 512));
  }
  check_target(target, options.overwrite, files_of(file));
  std::vector<PlannedTensor> tensors;
  tensors.reserve(file.tensors().size());
  for (const GgufTensor& tensor : file.tensors()) tensors.push_back(planned(file, tensor));
  choose_types(tensors, type, log);
  warn_if_nothing_is_gained(tensors, type, log);

  GgufWriter writer;
  for (const GgufEntry& entry : file.entries()) {
    if (!is_replaced(entry.key)) writer.put_entry(entry);
  }
  put_file_type(writer, type);
  file.require_whole();
  return write_model(writer, tensors, target, options.recode);
}

}  // namespace quarrel
