#include "model/hyper.h"

#include <cmath>

#include "base/error.h"

namespace quarrel {

HyperParameters::HyperParameters(const GgufFile& file) : file_(file) {
  const auto architecture = file.string("general.architecture");
  if (!architecture) {
    fail(ErrorKind::bad_file, "'{}' has no key general.architecture: it is not a language model", file.path().string());
  }
  architecture_ = *architecture;
}

namespace {

std::int32_t bounded(const std::string& key, std::int64_t value, std::int32_t least, std::int32_t most) {
  if (value < least || value > most) {
    fail(ErrorKind::bad_file, "key {} is {}, which is not between {} and {}", key, value, least, most);
  }
  return static_cast<std::int32_t>(value);
}

}  // namespace

std::int32_t HyperParameters::integer(std::string_view name, std::int32_t least, std::int32_t most) const {
  const auto value = file_.integer(key(name));
  if (!value) fail(ErrorKind::bad_file, "the file has no key {}", key(name));
  return bounded(key(name), *value, least, most);
}

std::int32_t HyperParameters::integer_or(std::string_view name, std::int32_t fallback, std::int32_t least,
                                         std::int32_t most) const {
  const auto value = file_.integer(key(name));
  return value ? bounded(key(name), *value, least, most) : fallback;
}

std::int32_t HyperParameters::layer_integer(std::string_view name, std::int32_t layer, std::int32_t layers,
                                            std::int32_t least, std::int32_t most) const {
  const GgufEntry* entry = file_.find(key(name));
  if (entry == nullptr) fail(ErrorKind::bad_file, "the file has no key {}", key(name));
  if (entry->kind != GgufKind::array) return integer(name, least, most);
  const auto values = file_.numbers(key(name));
  if (!values || values->count != static_cast<std::uint64_t>(layers)) {
    fail(ErrorKind::bad_file, "key {} must hold one number or {} of them, one a layer", key(name), layers);
  }
  return bounded(key(name), values->as_int(static_cast<std::uint64_t>(layer)), least, most);
}

double HyperParameters::number(std::string_view name) const {
  const auto value = file_.number(key(name));
  if (!value) fail(ErrorKind::bad_file, "the file has no key {}", key(name));
  if (!std::isfinite(*value)) fail(ErrorKind::bad_file, "key {} is not a finite number", key(name));
  return *value;
}

double HyperParameters::number_or(std::string_view name, double fallback) const {
  return has(name) ? number(name) : fallback;
}

std::optional<std::string_view> HyperParameters::string(std::string_view name) const { return file_.string(key(name)); }

bool HyperParameters::has(std::string_view name) const { return file_.find(key(name)) != nullptr; }

bool HyperParameters::boolean_or(std::string_view name, bool fallback) const {
  return file_.boolean(key(name)).value_or(fallback);
}

}  // namespace quarrel
