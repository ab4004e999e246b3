#include "store/model_description.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <system_error>

#include "base/error.h"
#include "base/sha256.h"
#include "store/own_store.h"

namespace quarrel {
namespace {

namespace fs = std::filesystem;

std::string count_text(std::uint64_t parameters) {
  const auto count = static_cast<double>(parameters);
  if (count >= 9.95e9) return fmt::format("{:.0f}B", count / 1e9);
  if (count >= 999.5e6) return fmt::format("{:.1f}B", count / 1e9);
  if (count >= 999.5e3) return fmt::format("{:.0f}M", count / 1e6);
  return fmt::format("{:.0f}K", count / 1e3);
}

}  // namespace

// The directory of a GGUF file says it all.
ModelDescription describe_file(const GgufFile& file) {
  ModelDescription model{.bytes = file.file_bytes()};
  std::map<QuantType, std::uint64_t> bytes_by_type;
  for (const GgufTensor& tensor : file.tensors()) {
    model.parameter_count += tensor.elements();
    bytes_by_type[tensor.type] += tensor.bytes;
  }
  if (bytes_by_type.empty()) {
    model.problem = "the file has no tensors";
    return model;
  }
  const auto less = [](const auto& a, const auto& b) { return a.second < b.second; };
  const auto most = std::max_element(bytes_by_type.begin(), bytes_by_type.end(), less);
  model.quantisation = type_info(most->first).name;
  model.parameters = count_text(model.parameter_count);
  const GgufEntry* family = file.find("general.architecture");
  if (family != nullptr && family->kind == GgufKind::string) model.family = std::get<std::string_view>(family->value);
  return model;
}

ModelDescription describe_file(const fs::path& path) {
  try {
    return describe_file(GgufFile::open(path));  // reading it also shows whether the file is sound
  } catch (const Error& error) {
    ModelDescription model{.problem = error.what()};
    std::error_code fault;
    const auto size = fs::file_size(path, fault);
    if (!fault) model.bytes = size;
    return model;
  }
}

std::chrono::system_clock::time_point modified_time(const fs::path& path) {
  std::error_code fault;
  const auto time = fs::last_write_time(path, fault);
  return fault ? std::chrono::system_clock::time_point()
               : std::chrono::time_point_cast<std::chrono::system_clock::duration>(
                     fs::file_time_type::clock::to_sys(time));
}

std::string known_digest(const fs::path& path) {
  constexpr std::string_view kBlob = "sha256-";
  constexpr std::size_t kDigits = 64;
  const std::string file = path.filename().string();
  if (file.starts_with(kBlob) && file.size() == kBlob.size() + kDigits) return file.substr(kBlob.size());
  const std::string stamp = read_stamp(path);
  const std::string noted = stamp_digest(stamp);
  return noted.size() == kDigits && stamp == stamp_line(path, noted) ? noted : std::string();
}

std::string model_digest(const fs::path& path) {
  if (std::string known = known_digest(path); !known.empty()) return known;
  std::error_code fault;
  const auto bytes = fs::file_size(path, fault);
  return sha256(fmt::format("{}\n{}\n{}", path.filename().string(), fault ? 0 : bytes,
                            modified_time(path).time_since_epoch().count()));
}

}  // namespace quarrel
