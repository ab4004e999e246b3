// What every part of a rendering shares: memory, fuel, depth, the clock, and the making of texts and lists. One Runtime
// a rendering; not thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "text/chat_template.h"
#include "text/jinja/heap.h"
#include "text/jinja/value.h"

namespace quarrel::jinja {

// Lists and dicts nested deeper than this are refused wherever code walks into them.
inline constexpr std::size_t kMaxValueDepth = 128;

enum class Origin : std::uint8_t { of_template, of_variables };

class Runtime {
 public:
  Runtime(const TemplateLimits& limits, const TemplateClock& clock)
      : limits_(limits), clock_(clock), heap_(limits.memory_bytes) {}

  Heap& heap() noexcept { return heap_; }
  const TemplateLimits& limits() const noexcept { return limits_; }
  const TemplateClock& clock() const noexcept { return clock_; }

  // Takes fuel. Work on many bytes or elements costs in proportion, so that time is bounded too.
  void spend(std::uint64_t steps) {
    if (steps > limits_.steps - spent_) fault("the template runs for more than {} steps", limits_.steps);
    spent_ += steps;
  }
  void spend_bytes(std::size_t bytes) {
    work_ += bytes;
    if (work_ < kBytesPerStep) return;
    spend(work_ / kBytesPerStep);
    work_ %= kBytesPerStep;
  }
  void spend_items(std::size_t items) { spend_bytes(items * 8); }

  Text text(std::string bytes, Origin origin);
  Value text_value(std::string_view bytes, Origin origin = Origin::of_template) {
    return Value::text(text(std::string(bytes), origin));
  }
  // A text over bytes that outlive the rendering.
  Text borrowed(std::string_view bytes, Origin origin);
  ListObject* list(ListFlavor flavor = ListFlavor::list);
  DictObject* dict() { return heap_.make<DictObject>(); }

 private:
  static constexpr std::uint64_t kBytesPerStep = 128;

  TemplateLimits limits_;
  TemplateClock clock_;
  Heap heap_;
  std::uint64_t spent_ = 0;
  std::uint64_t work_ = 0;  // bytes processed that do not make a step yet
};

inline Origin origin_of(bool from_variables) { return from_variables ? Origin::of_variables : Origin::of_template; }

// Puts a text together, keeping track of where each byte came from.
class TextBuilder {
 public:
  explicit TextBuilder(Runtime& runtime);

  void append(Text text);
  void append(std::string_view bytes, Origin origin = Origin::of_template);
  void append_all(Text text, Origin origin);  // with another origin than its own
  void repeat(std::string_view unit, std::uint64_t count, Origin origin = Origin::of_template);

  std::size_t size() const noexcept { return buffer_->own.size(); }
  const StringBuffer& buffer() const noexcept { return *buffer_; }
  Text finish() const { return {buffer_, 0, buffer_->own.size()}; }

 private:
  Runtime& runtime_;
  StringBuffer* buffer_;
};

// left + right. Grows left's buffer where nobody else has appended to it, so that adding up a text piece by piece takes
// time linear in its length.
Text concatenate(Runtime& runtime, Text left, Text right);

// What a value is called in error messages, as Python calls it: "int"; with its article, "an int".
std::string_view type_name(const Value& value);
std::string a_type(const Value& value);

}  // namespace quarrel::jinja
