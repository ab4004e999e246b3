// Truth, equality, order and membership.
#include <cstring>

#include "text/jinja/characters.h"
#include "text/jinja/operations.h"

namespace quarrel::jinja {
namespace {

int order(auto a, auto b) { return a < b ? -1 : (b < a ? 1 : 0); }

int compare_numbers(const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral()) return order(a.as_integer(), b.as_integer());
  return order(a.as_number(), b.as_number());
}

bool equal_lists(Runtime& runtime, const ListObject& a, const ListObject& b, std::size_t depth) {
  const bool tuples = a.flavor == ListFlavor::tuple;
  if (tuples != (b.flavor == ListFlavor::tuple) || a.items.size() != b.items.size()) return false;
  for (std::size_t i = 0; i < a.items.size(); ++i) {
    if (!equal(runtime, a.items[i], b.items[i], depth + 1)) return false;
  }
  return true;
}

bool equal_dicts(Runtime& runtime, const DictObject& a, const DictObject& b, std::size_t depth) {
  if (a.entries.size() != b.entries.size()) return false;
  for (const auto& entry : a.entries) {
    const Value* other = b.find(runtime, entry.key);
    if (other == nullptr || !equal(runtime, entry.value, *other, depth + 1)) return false;
  }
  return true;
}

}  // namespace

bool truth(const Value& value) {
  switch (value.kind()) {
    case Kind::undefined:
    case Kind::none: return false;
    case Kind::boolean:
    case Kind::integer: return value.as_integer() != 0;
    case Kind::floating: return value.as_floating() != 0;
    case Kind::text: return value.as_text().size != 0;
    case Kind::list: return value.as_list().flavor == ListFlavor::generator || !value.as_list().items.empty();
    case Kind::dict: return !value.as_dict().entries.empty();
    case Kind::space:
    case Kind::host: return true;
  }
  return false;
}

bool equal(Runtime& runtime, const Value& a, const Value& b, std::size_t depth) {
  if (depth > kMaxValueDepth) fault("values are nested more than {} deep", kMaxValueDepth);
  runtime.spend(depth > 0 ? 1 : 0);
  if (a.is_number() && b.is_number()) {
    if (a.is_integral() && b.is_integral()) return a.as_integer() == b.as_integer();
    return a.as_number() == b.as_number();
  }
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::undefined:
    case Kind::none: return true;
    case Kind::text:
      if (a.as_text().size != b.as_text().size) return false;
      runtime.spend_bytes(a.as_text().size);
      return a.view() == b.view();
    case Kind::list: return &a.as_list() == &b.as_list() || equal_lists(runtime, a.as_list(), b.as_list(), depth);
    case Kind::dict: return &a.as_dict() == &b.as_dict() || equal_dicts(runtime, a.as_dict(), b.as_dict(), depth);
    case Kind::space: return &a.as_dict() == &b.as_dict();
    case Kind::host: return &a.as_host() == &b.as_host();
    default: return false;
  }
}

int compare(Runtime& runtime, const Value& a, const Value& b, std::size_t depth) {
  if (depth > kMaxValueDepth) fault("values are nested more than {} deep", kMaxValueDepth);
  if (a.is_number() && b.is_number()) return compare_numbers(a, b);
  if (a.is(Kind::text) && b.is(Kind::text)) {
    runtime.spend_bytes(std::min(a.as_text().size, b.as_text().size));
    return a.view().compare(b.view());  // the order of UTF-8 bytes is that of code points
  }
  if (a.is(Kind::list) && b.is(Kind::list)) {
    const auto& left = a.as_list().items;
    const auto& right = b.as_list().items;
    for (std::size_t i = 0; i < left.size() && i < right.size(); ++i) {
      runtime.spend(1);
      if (!equal(runtime, left[i], right[i], depth + 1)) return compare(runtime, left[i], right[i], depth + 1);
    }
    return order(left.size(), right.size());
  }
  if (!a.is_defined()) fail_undefined(a);
  if (!b.is_defined()) fail_undefined(b);
  fault("{} and {} cannot be ordered", a_type(a), a_type(b));
}

std::size_t find_text(Runtime& runtime, std::string_view haystack, std::string_view needle, std::size_t from) {
  if (from > haystack.size()) return std::string_view::npos;
  if (needle.empty()) return from;
  runtime.spend_bytes(needle.size() + 16);  // a search costs something even where it finds at once
  if (needle.size() > haystack.size() - from) return std::string_view::npos;  // an empty text may have no address
  const char* const begin = haystack.data() + from;
  const std::size_t size = haystack.size() - from;
  const void* const found =
      needle.size() == 1 ? std::memchr(begin, needle[0], size) : memmem(begin, size, needle.data(), needle.size());
  if (found == nullptr) {
    runtime.spend_bytes(haystack.size() - from);
    return std::string_view::npos;
  }
  const auto at = static_cast<std::size_t>(static_cast<const char*>(found) - haystack.data());
  runtime.spend_bytes(at - from);
  return at;
}

bool contains(Runtime& runtime, const Value& container, const Value& item) {
  switch (container.kind()) {
    case Kind::text:
      if (!item.is_defined()) fail_undefined(item);
      if (!item.is(Kind::text)) fault("only a string can be in a string, not {}", a_type(item));
      return find_text(runtime, container.view(), item.view(), 0) != std::string_view::npos;
    case Kind::list:
      runtime.spend_items(container.as_list().items.size());
      for (const Value& candidate : container.as_list().items) {
        if (equal(runtime, candidate, item)) return true;
      }
      return false;
    case Kind::dict: return container.as_dict().find(runtime, item) != nullptr;
    case Kind::undefined: return false;
    default: fault("cannot look for anything in {}", a_type(container));
  }
}

}  // namespace quarrel::jinja
