// The values a template computes with: plain data, text that remembers which of its bytes came out of the variables,
// and a few objects of the language itself (macros, loops, namespaces). There is nothing of the host to reach.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/heap.h"
#include "text/tokenizer.h"

namespace quarrel::jinja {

class Runtime;

// Bytes of text and where they came from. Many texts may look into one buffer; only its owner, and only while the
// text ends at the buffer's end, may append to it.
struct StringBuffer : Object {
  std::string own;                        // the bytes, unless they belong to the caller's JSON
  std::string_view bytes;                 // all of them
  std::vector<TextRange> from_variables;  // ascending, not overlapping, not touching
  std::size_t charged = 0;                // bytes of capacity already counted
  bool growable = false;
};

// A piece of a buffer.
struct Text {
  StringBuffer* buffer = nullptr;
  std::size_t begin = 0;
  std::size_t size = 0;

  // Valid until the buffer grows: do not keep it over an evaluation.
  std::string_view view() const { return buffer == nullptr ? std::string_view() : buffer->bytes.substr(begin, size); }
  Text slice(std::size_t from, std::size_t count) const { return {buffer, begin + from, count}; }
  bool from_variables() const;  // whether any byte is
};

struct ListObject;
struct DictObject;
class HostObject;

enum class Kind : std::uint8_t { undefined, none, boolean, integer, floating, text, list, dict, space, host };

class Value {
 public:
  Value() noexcept : text_{} {}
  // An undefined value that knows the name it was looked for under.
  static Value missing(Text name) { return {Kind::undefined, name}; }
  static Value none() { return {Kind::none, Text{}}; }
  static Value boolean(bool value) {
    Value v(Kind::boolean, Text{});
    v.integer_ = value ? 1 : 0;
    return v;
  }
  static Value integer(std::int64_t value) {
    Value v(Kind::integer, Text{});
    v.integer_ = value;
    return v;
  }
  static Value floating(double value) {
    Value v(Kind::floating, Text{});
    v.floating_ = value;
    return v;
  }
  static Value text(Text value) { return {Kind::text, value}; }
  static Value list(ListObject* value) {
    Value v(Kind::list, Text{});
    v.list_ = value;
    return v;
  }
  static Value dict(DictObject* value) {
    Value v(Kind::dict, Text{});
    v.dict_ = value;
    return v;
  }
  // namespace(): a dict whose attributes can be set.
  static Value space(DictObject* value) {
    Value v(Kind::space, Text{});
    v.dict_ = value;
    return v;
  }
  static Value host(HostObject* value) {
    Value v(Kind::host, Text{});
    v.host_ = value;
    return v;
  }

  Kind kind() const noexcept { return kind_; }
  bool is(Kind kind) const noexcept { return kind_ == kind; }
  bool is_defined() const noexcept { return kind_ != Kind::undefined; }
  bool is_integral() const noexcept { return kind_ == Kind::integer || kind_ == Kind::boolean; }
  bool is_number() const noexcept { return is_integral() || kind_ == Kind::floating; }

  // Each is meaningful for its own kind only; the caller has looked.
  bool as_boolean() const noexcept { return integer_ != 0; }
  std::int64_t as_integer() const noexcept { return integer_; }  // booleans too
  double as_floating() const noexcept { return floating_; }
  double as_number() const noexcept { return kind_ == Kind::floating ? floating_ : static_cast<double>(integer_); }
  Text as_text() const noexcept { return text_; }  // of an undefined value: its name
  std::string_view view() const { return text_.view(); }
  ListObject& as_list() const noexcept { return *list_; }
  DictObject& as_dict() const noexcept { return *dict_; }
  HostObject& as_host() const noexcept { return *host_; }

 private:
  Value(Kind kind, Text text) noexcept : kind_(kind), text_(text) {}

  Kind kind_ = Kind::undefined;
  union {
    Text text_;
    std::int64_t integer_;
    double floating_;
    ListObject* list_;
    DictObject* dict_;
    HostObject* host_;
  };
};

// What a list is called when printed, and whether it may change.
enum class ListFlavor : std::uint8_t { list, tuple, range, generator, keys, values, items };

struct ListObject : Object {
  std::vector<Value> items;
  ListFlavor flavor = ListFlavor::list;
  bool from_variables = false;  // made from the caller's JSON: its punctuation counts as the caller's too
  std::int64_t range_start = 0, range_stop = 0, range_step = 1;  // of a range

  void push(Heap& heap, const Value& value);
};

// Keys in the order they were first set.
struct DictObject : Object {
  struct Entry {
    Value key;
    Value value;
  };
  std::vector<Entry> entries;
  bool from_variables = false;

  const Value* find(Runtime& runtime, const Value& key) const;
  const Value* find(std::string_view key) const;
  void set(Runtime& runtime, const Value& key, const Value& value);
  bool erase(Runtime& runtime, const Value& key);

 private:
  std::size_t position(Runtime& runtime, const Value& key) const;
  void add_to_index(Runtime& runtime, std::size_t at);

  // Where each key stands, by its canonical form; kept only for dicts too large to scan.
  std::map<std::string, std::size_t, std::less<>> index_;
};

// Dict keys that are equal have equal canonical forms: 1, 1.0 and true are one key. Throws Fault for what cannot be
// one.
std::string canonical_key(Runtime& runtime, const Value& key, std::size_t depth = 0);

struct NamedValue {
  std::string_view name;
  Value value;
};

struct Arguments {
  std::span<const Value> positional;
  std::span<const NamedValue> named;
};

// Things of the language that are not data: macros, functions, bound methods, loops.
class HostObject : public Object {
 public:
  virtual std::string_view type_name() const = 0;
  virtual bool callable() const { return true; }
  virtual Value call(Runtime& runtime, const Arguments& arguments);
  // Undefined when there is no such attribute.
  virtual Value attribute(Runtime& runtime, std::string_view name);
};

}  // namespace quarrel::jinja
