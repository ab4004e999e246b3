#include "text/jinja/globals.h"

#include "text/jinja/arguments.h"
#include "text/jinja/operations.h"

namespace quarrel::jinja {
namespace {

constexpr std::uint64_t kMaxRange = 100'000;  // as the sandbox of the original has it

using GlobalFunction = Value (*)(Runtime& runtime, const Arguments& arguments);

class FunctionObject : public HostObject {
 public:
  explicit FunctionObject(GlobalFunction function) : function_(function) {}
  std::string_view type_name() const override { return "function"; }
  Value call(Runtime& runtime, const Arguments& arguments) override { return function_(runtime, arguments); }

 private:
  GlobalFunction function_;
};

Value range(Runtime& runtime, const Arguments& arguments) {
  if (!arguments.named.empty() || arguments.positional.empty() || arguments.positional.size() > 3) {
    fault("range takes one to three integers");
  }
  std::int64_t numbers[3] = {0, 0, 1};
  for (std::size_t i = 0; i < arguments.positional.size(); ++i) {
    numbers[i] = require_integer(arguments.positional[i], "range's argument");
  }
  if (arguments.positional.size() == 1) std::swap(numbers[0], numbers[1]);
  const auto [start, stop, step] = numbers;
  if (step == 0) fault("range's step must not be zero");
  std::uint64_t count = 0;
  if (step > 0 ? start < stop : start > stop) {
    const std::uint64_t distance = step > 0 ? static_cast<std::uint64_t>(stop) - static_cast<std::uint64_t>(start)
                                            : static_cast<std::uint64_t>(start) - static_cast<std::uint64_t>(stop);
    const std::uint64_t stride =
        step > 0 ? static_cast<std::uint64_t>(step) : std::uint64_t{0} - static_cast<std::uint64_t>(step);
    count = (distance - 1) / stride + 1;
  }
  if (count > kMaxRange) fault("a range of {} numbers is too long: {} at most", count, kMaxRange);
  ListObject* list = runtime.list(ListFlavor::range);
  list->range_start = start;
  list->range_stop = stop;
  list->range_step = step;
  runtime.spend_items(count);
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t value = static_cast<std::uint64_t>(start) + i * static_cast<std::uint64_t>(step);
    list->push(runtime.heap(), Value::integer(static_cast<std::int64_t>(value)));
  }
  return Value::list(list);
}

DictObject* dict_from(Runtime& runtime, std::string_view callee, const Arguments& arguments) {
  if (arguments.positional.size() > 1) fault("{} takes at most one positional argument", callee);
  DictObject* dict = runtime.dict();
  for (const Value& source : arguments.positional) {
    if (source.is(Kind::dict)) {
      runtime.spend(source.as_dict().entries.size());
      for (const auto& entry : source.as_dict().entries) dict->set(runtime, entry.key, entry.value);
      continue;
    }
    for (const Value& pair : elements(runtime, source).items) {
      runtime.spend(1);
      const ListObject& parts = elements(runtime, pair);
      if (parts.items.size() != 2) fault("{} takes pairs of key and value", callee);
      dict->set(runtime, parts.items[0], parts.items[1]);
    }
  }
  for (const NamedValue& named : arguments.named) {
    dict->set(runtime, runtime.text_value(named.name), named.value);
  }
  return dict;
}

Value make_dict(Runtime& runtime, const Arguments& arguments) {
  return Value::dict(dict_from(runtime, "dict", arguments));
}

Value make_namespace(Runtime& runtime, const Arguments& arguments) {
  return Value::space(dict_from(runtime, "namespace", arguments));
}

Value raise_exception(Runtime& runtime, const Arguments& arguments) {
  const BoundArguments bound("raise_exception", arguments, {"message"}, 1);
  throw RaisedByTemplate(std::string(to_text(runtime, bound[0]).view()));
}

Value strftime_now(Runtime& runtime, const Arguments& arguments) {
  const BoundArguments bound("strftime_now", arguments, {"format"}, 1);
  const Text format = bound.text(0);
  runtime.spend_bytes(8 * format.size);
  runtime.heap().charge(8 * format.size);
  const Origin origin = origin_of(format.from_variables());
  return Value::text(runtime.text(format_date(runtime.clock(), format.view()), origin));
}

// joiner(", "): nothing the first time, the separator ever after.
class Joiner : public HostObject {
 public:
  explicit Joiner(Text separator) : separator_(separator) {}
  std::string_view type_name() const override { return "joiner"; }
  Value call(Runtime& /*runtime*/, const Arguments& arguments) override {
    const BoundArguments none("a joiner", arguments, {});
    if (used_) return Value::text(separator_);
    used_ = true;
    return Value::text({});
  }

 private:
  Text separator_;
  bool used_ = false;
};

Value make_joiner(Runtime& runtime, const Arguments& arguments) {
  const BoundArguments bound("joiner", arguments, {"sep"});
  const Text separator = bound.has(0) ? bound.text(0) : runtime.borrowed(", ", Origin::of_template);
  return Value::host(runtime.heap().make<Joiner>(separator));
}

// cycler(a, b): .next() goes round, .current stands, .reset() begins again.
class Cycler : public HostObject {
 public:
  explicit Cycler(std::span<const Value> values) : values_(values.begin(), values.end()) {}
  std::string_view type_name() const override { return "cycler"; }
  bool callable() const override { return false; }
  Value attribute(Runtime& runtime, std::string_view name) override;

  Value next() {
    const Value value = values_[at_];
    at_ = (at_ + 1) % values_.size();
    return value;
  }
  void reset() { at_ = 0; }

 private:
  std::vector<Value> values_;
  std::size_t at_ = 0;
};

class CyclerMethod : public HostObject {
 public:
  CyclerMethod(Cycler& cycler, bool advances) : cycler_(cycler), advances_(advances) {}
  std::string_view type_name() const override { return "cycler's method"; }
  Value call(Runtime& /*runtime*/, const Arguments& arguments) override {
    const BoundArguments none("a cycler's method", arguments, {});
    if (advances_) return cycler_.next();
    cycler_.reset();
    return Value::none();
  }

 private:
  Cycler& cycler_;
  bool advances_;
};

Value Cycler::attribute(Runtime& runtime, std::string_view name) {
  if (name == "current") return values_[at_];
  if (name == "next") return Value::host(runtime.heap().make<CyclerMethod>(*this, true));
  if (name == "reset") return Value::host(runtime.heap().make<CyclerMethod>(*this, false));
  return {};
}

Value make_cycler(Runtime& runtime, const Arguments& arguments) {
  if (arguments.positional.empty() || !arguments.named.empty()) fault("cycler needs values to go round");
  runtime.heap().charge(arguments.positional.size() * sizeof(Value));
  return Value::host(runtime.heap().make<Cycler>(arguments.positional));
}

struct Entry {
  std::string_view name;
  GlobalFunction function;
};

constexpr Entry kGlobals[] = {
    {"range", range},
    {"dict", make_dict},
    {"namespace", make_namespace},
    {"raise_exception", raise_exception},
    {"strftime_now", strftime_now},
    {"joiner", make_joiner},
    {"cycler", make_cycler},
};

}  // namespace

Value global_function(Runtime& runtime, std::string_view name) {
  for (const Entry& entry : kGlobals) {
    if (entry.name == name) return Value::host(runtime.heap().make<FunctionObject>(entry.function));
  }
  return {};
}

}  // namespace quarrel::jinja
