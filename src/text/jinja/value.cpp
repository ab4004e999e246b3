#include "text/jinja/value.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "text/jinja/runtime.h"

namespace quarrel::jinja {
namespace {

constexpr std::size_t kScanLimit = 8;  // up to so many keys are compared one by one

void encode_text(std::string_view text, std::string& out) {
  out += 's';
  out += std::to_string(text.size());
  out += ':';
  out += text;
}

}  // namespace

bool Text::from_variables() const {
  if (buffer == nullptr || size == 0) return false;
  const auto& ranges = buffer->from_variables;
  const auto it = std::upper_bound(ranges.begin(), ranges.end(), begin,
                                   [](std::size_t at, const TextRange& range) { return at < range.end; });
  return it != ranges.end() && it->begin < begin + size;
}

void ListObject::push(Heap& heap, const Value& value) {
  heap.charge(sizeof(Value) * 2);  // a vector's capacity may be twice its size
  items.push_back(value);
}

std::string canonical_key(Runtime& runtime, const Value& key, std::size_t depth) {
  if (depth > kMaxValueDepth) fault("values are nested more than {} deep", kMaxValueDepth);
  std::string out;
  switch (key.kind()) {
    case Kind::text: encode_text(key.view(), out); return out;
    case Kind::none: return "n";
    case Kind::boolean:
    case Kind::integer: return "i" + std::to_string(key.as_integer());
    case Kind::floating: {
      const double number = key.as_floating();
      if (std::abs(number) < 9e15 && std::floor(number) == number) {
        return "i" + std::to_string(static_cast<std::int64_t>(number));
      }
      out = "f";
      out.resize(1 + sizeof number);
      std::memcpy(out.data() + 1, &number, sizeof number);
      return out;
    }
    case Kind::list:
      if (key.as_list().flavor == ListFlavor::tuple) {
        out = "t" + std::to_string(key.as_list().items.size()) + ":";
        runtime.spend(key.as_list().items.size());  // a tuple may hold another many times
        for (const Value& item : key.as_list().items) out += canonical_key(runtime, item, depth + 1);
        return out;
      }
      break;
    case Kind::undefined: return "u";
    case Kind::host: return "h" + std::to_string(reinterpret_cast<std::uintptr_t>(&key.as_host()));
    case Kind::dict:
    case Kind::space: break;
  }
  fault("{} cannot be a key", a_type(key));
}

std::size_t DictObject::position(Runtime& runtime, const Value& key) const {
  if (index_.empty()) {
    std::size_t at = 0;
    if (key.is(Kind::text)) {
      while (at < entries.size() && !(entries[at].key.is(Kind::text) && entries[at].key.view() == key.view())) ++at;
    } else {
      const std::string encoded = canonical_key(runtime, key);
      while (at < entries.size() && canonical_key(runtime, entries[at].key) != encoded) ++at;
    }
    return at;
  }
  const auto it = index_.find(canonical_key(runtime, key));
  return it == index_.end() ? entries.size() : it->second;
}

void DictObject::add_to_index(Runtime& runtime, std::size_t at) {
  std::string encoded = canonical_key(runtime, entries[at].key);
  runtime.heap().charge(encoded.size() + 96);  // a node of the index
  index_.emplace(std::move(encoded), at);
}

const Value* DictObject::find(std::string_view key) const {
  if (!index_.empty()) {
    std::string encoded;
    encode_text(key, encoded);
    const auto it = index_.find(encoded);
    return it == index_.end() ? nullptr : &entries[it->second].value;
  }
  for (const Entry& entry : entries) {
    if (entry.key.is(Kind::text) && entry.key.view() == key) return &entry.value;
  }
  return nullptr;
}

const Value* DictObject::find(Runtime& runtime, const Value& key) const {
  if (key.is(Kind::text)) {
    runtime.spend_bytes(key.as_text().size);
    return find(key.view());
  }
  const std::size_t at = position(runtime, key);
  return at == entries.size() ? nullptr : &entries[at].value;
}

void DictObject::set(Runtime& runtime, const Value& key, const Value& value) {
  if (key.is(Kind::text)) {
    runtime.spend_bytes(key.as_text().size);
  } else {
    (void)canonical_key(runtime, key);  // refuses what cannot be a key
  }
  const std::size_t at = position(runtime, key);
  if (at < entries.size()) {
    entries[at].value = value;
    return;
  }
  runtime.heap().charge(sizeof(Entry) * 2);
  entries.push_back({key, value});
  if (entries.size() <= kScanLimit) return;
  for (std::size_t i = index_.empty() ? 0 : at; i < entries.size(); ++i) add_to_index(runtime, i);
}

bool DictObject::erase(Runtime& runtime, const Value& key) {
  const std::size_t at = position(runtime, key);
  if (at == entries.size()) return false;
  runtime.spend(entries.size());
  entries.erase(entries.begin() + static_cast<std::ptrdiff_t>(at));
  index_.clear();
  for (std::size_t i = 0; entries.size() > kScanLimit && i < entries.size(); ++i) add_to_index(runtime, i);
  return true;
}

Value HostObject::call(Runtime& /*runtime*/, const Arguments& /*arguments*/) {
  fault("a {} cannot be called", type_name());
}

Value HostObject::attribute(Runtime& /*runtime*/, std::string_view /*name*/) { return {}; }

}  // namespace quarrel::jinja
