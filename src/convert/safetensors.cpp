#include "convert/safetensors.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <set>
#include <unordered_set>

#include "base/checked.h"
#include "base/error.h"
#include "base/printable.h"
#include "convert/json_file.h"

namespace quarrel {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kLengthBytes = 8;
constexpr std::size_t kMaxDimensions = 8;
constexpr std::string_view kMetadata = "__metadata__";

struct Dtype {
  std::string_view name;
  std::uint64_t bytes;
  std::optional<QuantType> type;
};

constexpr std::array kDtypes = {
    Dtype{"F32", 4, QuantType::f32}, Dtype{"F16", 2, QuantType::f16},   Dtype{"BF16", 2, QuantType::bf16},
    Dtype{"F64", 8, std::nullopt},   Dtype{"F8_E4M3", 1, std::nullopt}, Dtype{"F8_E5M2", 1, std::nullopt},
    Dtype{"I64", 8, std::nullopt},   Dtype{"I32", 4, std::nullopt},     Dtype{"I16", 2, std::nullopt},
    Dtype{"I8", 1, std::nullopt},    Dtype{"U64", 8, std::nullopt},     Dtype{"U32", 4, std::nullopt},
    Dtype{"U16", 2, std::nullopt},   Dtype{"U8", 1, std::nullopt},      Dtype{"BOOL", 1, std::nullopt},
};

// Reads the header as it comes, so that a hostile one is refused at its first odd piece and no tree is ever built:
//   {"__metadata__": {text: text, …}, name: {"dtype": text, "shape": [n, …], "data_offsets": [begin, end]}, …}
class HeaderReader {
 public:
  HeaderReader(std::string file, std::uint64_t data_begin, std::uint64_t data_bytes)
      : file_(std::move(file)), data_begin_(data_begin), data_bytes_(data_bytes) {}

  std::vector<SafetensorsTensor> take() && { return std::move(tensors_); }

  // What the parser calls.
  bool null() { refuse("holds a null"); }
  bool boolean(bool) { refuse("holds a true or false"); }
  bool number_integer(std::int64_t) { refuse("holds a negative number"); }
  bool number_float(double, const std::string&) { refuse("holds a fraction"); }
  bool binary(std::vector<std::uint8_t>&) { refuse("holds binary data"); }

  bool number_unsigned(std::uint64_t value) {
    if (place_ == Place::shape) {
      if (tensor_.shape.size() == kMaxDimensions) refuse(fmt::format("has more than {} dimensions", kMaxDimensions));
      tensor_.shape.push_back(value);
    } else if (place_ == Place::offsets) {
      if (offsets_.size() == 2) refuse("has more than two numbers");
      offsets_.push_back(value);
    } else {
      refuse("holds a number");
    }
    return true;
  }

  bool string(std::string& value) {
    if (place_ == Place::metadata) return true;
    if (place_ != Place::tensor || field_ != "dtype") refuse("holds a string");
    tensor_.dtype = std::move(value);
    return true;
  }

  bool key(std::string& name) {
    if (place_ == Place::metadata) return true;
    if (place_ == Place::tensor) {
      if (!seen_.insert(name).second) refuse(fmt::format("has the field '{}' twice", printable(name)));
      field_ = std::move(name);
      return true;
    }
    if (name.empty() || name.size() > kMaxSafetensorsName) {
      fail(ErrorKind::bad_file, "'{}': a tensor's name has {} bytes; 1 to {} are allowed", file_, name.size(),
           kMaxSafetensorsName);
    }
    tensor_ = {};
    tensor_.name = name;
    field_.clear();
    seen_.clear();
    offsets_.clear();
    if (!names_.insert(std::move(name)).second) refuse("occurs twice");
    if (tensors_.size() == kMaxSafetensors) refuse(fmt::format("is more than the {}th tensor", kMaxSafetensors));
    return true;
  }

  bool start_object(std::size_t) {
    if (place_ == Place::outside) {
      place_ = Place::top;
    } else if (place_ == Place::top) {
      place_ = tensor_.name == kMetadata ? Place::metadata : Place::tensor;
    } else {
      refuse("holds an object");
    }
    return true;
  }

  bool end_object() {
    if (place_ == Place::tensor) finish_tensor();
    place_ = place_ == Place::top ? Place::outside : Place::top;
    return true;
  }

  bool start_array(std::size_t) {
    if (place_ == Place::tensor && field_ == "shape") {
      place_ = Place::shape;
    } else if (place_ == Place::tensor && field_ == "data_offsets") {
      place_ = Place::offsets;
    } else {
      refuse("holds an array");
    }
    return true;
  }

  bool end_array() {
    place_ = Place::tensor;
    return true;
  }

  bool parse_error(std::size_t byte, const std::string&, const nlohmann::json::exception&) {
    fail(ErrorKind::bad_file, "'{}': the header is not valid JSON: the error is at its byte {}", file_, byte);
  }

 private:
  enum class Place : std::uint8_t { outside, top, metadata, tensor, shape, offsets };

  [[noreturn]] void refuse(std::string_view reason) const {
    if (tensor_.name.empty()) fail(ErrorKind::bad_file, "'{}': the header {}, not tensors", file_, reason);
    const std::string field = field_.empty() ? "" : fmt::format("the field {} ", printable(field_));
    fail(ErrorKind::bad_file, "'{}': tensor '{}': {}{}", file_, printable(tensor_.name), field, reason);
  }

  void finish_tensor() {
    field_.clear();
    for (const char* needed : {"dtype", "shape", "data_offsets"}) {
      if (!seen_.contains(needed)) refuse(fmt::format("has no field {}", needed));
    }
    if (seen_.size() != 3) refuse("has a field beside dtype, shape and data_offsets");
    const auto* dtype = std::ranges::find(kDtypes, std::string_view(tensor_.dtype), &Dtype::name);
    if (dtype == kDtypes.end()) refuse(fmt::format("has the dtype '{}', which is not known", printable(tensor_.dtype)));
    tensor_.type = dtype->type;
    std::optional<std::uint64_t> bytes = dtype->bytes;
    for (const std::uint64_t extent : tensor_.shape) {
      bytes = bytes ? checked_mul(*bytes, extent) : bytes;
    }
    if (!bytes) refuse(fmt::format("has the shape [{}], which is too large", fmt::join(tensor_.shape, ", ")));
    if (offsets_.size() != 2) refuse("has data_offsets that are not two numbers");
    if (offsets_[0] > offsets_[1] || offsets_[1] > data_bytes_) {
      refuse(fmt::format("has the data_offsets [{}, {}], but the file holds {} bytes of data", offsets_[0], offsets_[1],
                         data_bytes_));
    }
    if (offsets_[1] - offsets_[0] != *bytes) {
      refuse(fmt::format("has {} bytes by its data_offsets, but {} by its shape and dtype", offsets_[1] - offsets_[0],
                         *bytes));
    }
    tensor_.offset = data_begin_ + offsets_[0];
    tensor_.bytes = *bytes;
    tensors_.push_back(std::move(tensor_));
    tensor_ = {};
  }

  std::string file_;
  std::uint64_t data_begin_;
  std::uint64_t data_bytes_;
  Place place_ = Place::outside;
  SafetensorsTensor tensor_;
  std::string field_;
  std::set<std::string> seen_;
  std::vector<std::uint64_t> offsets_;
  std::unordered_set<std::string> names_;
  std::vector<SafetensorsTensor> tensors_;
};

void check_apart(const std::vector<SafetensorsTensor>& tensors, const std::string& file) {
  std::vector<const SafetensorsTensor*> order;
  order.reserve(tensors.size());
  for (const SafetensorsTensor& tensor : tensors) {
    if (tensor.bytes > 0) order.push_back(&tensor);
  }
  std::ranges::sort(order, {}, &SafetensorsTensor::offset);
  for (std::size_t i = 1; i < order.size(); ++i) {
    if (order[i - 1]->offset + order[i - 1]->bytes <= order[i]->offset) continue;
    fail(ErrorKind::bad_file, "'{}': tensor '{}': its data_offsets overlap those of '{}'", file,
         printable(order[i]->name), printable(order[i - 1]->name));
  }
}

// A name that leads nowhere but into the folder itself.
bool is_plain_name(std::string_view name) {
  return !name.empty() && name.size() <= 255 && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\\\0", 3)) == std::string_view::npos;
}

}  // namespace

SafetensorsFile SafetensorsFile::open(const fs::path& path) {
  SafetensorsFile result;
  result.mapping_ = MappedFile::open(path);
  result.bytes_ = result.mapping_->bytes();
  result.parse(printable(path.string(), 512));
  return result;
}

SafetensorsFile SafetensorsFile::view(std::span<const std::byte> bytes, const std::string& name) {
  SafetensorsFile result;
  result.bytes_ = bytes;
  result.parse(name);
  return result;
}

void SafetensorsFile::parse(const std::string& name) {
  if (bytes_.size() < kLengthBytes) {
    fail(ErrorKind::bad_file, "'{}' is not a safetensors file: it has {} bytes", name, bytes_.size());
  }
  std::uint64_t length = 0;
  std::memcpy(&length, bytes_.data(), sizeof(length));
  const std::uint64_t rest = bytes_.size() - kLengthBytes;
  if (length > kMaxSafetensorsHeader) {
    fail(ErrorKind::bad_file, "'{}' is not a safetensors file: its header would have {} bytes; {} are the most", name,
         length, kMaxSafetensorsHeader);
  }
  if (length > rest) {
    fail(ErrorKind::bad_file, "'{}': the header should have {} bytes, but the file ends after {}", name, length, rest);
  }
  const char* text = reinterpret_cast<const char*>(bytes_.data()) + kLengthBytes;
  HeaderReader reader(name, kLengthBytes + length, rest - length);
  nlohmann::json::sax_parse(text, text + length, &reader);
  tensors_ = std::move(reader).take();
  check_apart(tensors_, name);
  std::ranges::sort(tensors_, {}, &SafetensorsTensor::name);
}

const SafetensorsTensor* SafetensorsFile::find(std::string_view name) const noexcept {
  const auto found = std::ranges::lower_bound(tensors_, name, {}, &SafetensorsTensor::name);
  return found != tensors_.end() && found->name == name ? &*found : nullptr;
}

SafetensorsModel SafetensorsModel::open(const fs::path& folder) {
  SafetensorsModel result;
  const fs::path whole = folder / "model.safetensors";
  const fs::path index = folder / "model.safetensors.index.json";
  std::error_code fault;
  if (!fs::exists(whole, fault) && fs::exists(index, fault)) {
    result.open_shards(folder, index);
  } else if (!fs::exists(whole, fault)) {
    fail(ErrorKind::not_found, "there is neither '{}' nor an index of parts beside it", printable(whole.string(), 512));
  } else {
    result.files_.push_back(SafetensorsFile::open(whole));
    for (const SafetensorsTensor& tensor : result.files_.front().tensors()) result.add(result.files_.front(), tensor);
  }
  return result;
}

void SafetensorsModel::open_shards(const fs::path& folder, const fs::path& index) {
  const nlohmann::json content = read_json_file(index);
  const std::string name = printable(index.string(), 512);
  const JsonFields fields(content, name);
  const nlohmann::json* map = fields.find("weight_map");
  if (map == nullptr || !map->is_object() || map->empty()) {
    fail(ErrorKind::bad_file, "{}: weight_map must say where each tensor is", name);
  }
  std::map<std::string, std::vector<std::string>> tensors_by_file;
  for (const auto& [tensor, value] : map->items()) {
    const std::string file = value.is_string() ? value.get<std::string>() : std::string();
    if (!is_plain_name(file)) {
      fail(ErrorKind::bad_file, "{}: tensor '{}' is said to be in '{}', which is not a plain file name", name,
           printable(tensor), printable(file));
    }
    tensors_by_file[file].push_back(tensor);
  }
  if (tensors_by_file.size() > kMaxSafetensorsShards) {
    fail(ErrorKind::bad_file, "{}: weight_map names {} files; {} are the most", name, tensors_by_file.size(),
         kMaxSafetensorsShards);
  }
  files_.reserve(tensors_by_file.size());  // entries point into it
  for (const auto& [file, tensors] : tensors_by_file) {
    const SafetensorsFile& shard = files_.emplace_back(SafetensorsFile::open(folder / file));
    for (const std::string& tensor : tensors) {
      const SafetensorsTensor* found = shard.find(tensor);
      if (found == nullptr) {
        fail(ErrorKind::bad_file, "{}: tensor '{}' is said to be in '{}', which does not hold it", name,
             printable(tensor), printable(file));
      }
      add(shard, *found);
    }
  }
}

void SafetensorsModel::add(const SafetensorsFile& file, const SafetensorsTensor& tensor) {
  index_.emplace(tensor.name, entries_.size());
  entries_.push_back({&file, &tensor});
}

SafetensorsModel::Entry SafetensorsModel::find(std::string_view name) const noexcept {
  const auto found = index_.find(name);
  return found == index_.end() ? Entry{} : entries_[found->second];
}

}  // namespace quarrel
