#include "text/jinja/interpreter_objects.h"

#include <algorithm>

#include "text/jinja/interpreter.h"
#include "text/jinja/operations.h"

namespace quarrel::jinja {
namespace {

// loop.cycle and loop.changed.
class LoopMethod : public HostObject {
 public:
  LoopMethod(LoopObject& loop, bool cycles) : loop_(loop), cycles_(cycles) {}
  std::string_view type_name() const override { return "loop's method"; }
  Value call(Runtime& runtime, const Arguments& arguments) override {
    if (!arguments.named.empty()) fault("loop's methods take no named arguments");
    if (cycles_) return loop_.cycle(arguments.positional);
    return Value::boolean(loop_.changed(runtime, arguments.positional));
  }

 private:
  LoopObject& loop_;
  bool cycles_;
};

Value number(std::size_t value) { return Value::integer(static_cast<std::int64_t>(value)); }

}  // namespace

Value MacroObject::call(Runtime& /*runtime*/, const Arguments& arguments) {
  return interpreter_.call_macro(definition_, scope_, arguments);
}

Value MacroObject::attribute(Runtime& runtime, std::string_view name) {
  if (name == "name") return runtime.text_value(definition_.name);
  return {};
}

Value LoopObject::attribute(Runtime& runtime, std::string_view name) {
  const std::size_t count = items_.items.size();
  if (name == "index") return number(index + 1);
  if (name == "index0") return number(index);
  if (name == "first") return Value::boolean(index == 0);
  if (name == "last") return Value::boolean(index + 1 >= count);
  if (name == "length") return number(count);
  if (name == "revindex") return number(count - std::min(count, index));
  if (name == "revindex0") return number(count - std::min(count, index + 1));
  if (name == "previtem") return index > 0 && index <= count ? items_.items[index - 1] : Value{};
  if (name == "nextitem") return index + 1 < count ? items_.items[index + 1] : Value{};
  if (name == "depth") return number(1);
  if (name == "depth0") return number(0);
  if (name == "cycle") return Value::host(runtime.heap().make<LoopMethod>(*this, true));
  if (name == "changed") return Value::host(runtime.heap().make<LoopMethod>(*this, false));
  return {};
}

Value LoopObject::cycle(std::span<const Value> values) const {
  if (values.empty()) fault("loop.cycle needs something to choose from");
  return values[index % values.size()];
}

bool LoopObject::changed(Runtime& runtime, std::span<const Value> values) {
  ListObject* now = runtime.list(ListFlavor::tuple);
  for (const Value& value : values) now->push(runtime.heap(), value);
  const bool same = last_ != nullptr && equal(runtime, Value::list(last_), Value::list(now));
  last_ = now;
  return !same;
}

void bind_macro_arguments(Runtime& runtime, const Template& source, const MacroDefinition& definition,
                          const Arguments& arguments, const std::function<void(NameId, const Value&)>& set,
                          const std::function<Value(const Expression&)>& evaluate) {
  const auto& parameters = definition.parameters;
  const auto set_special = [&](const char* name, const Value& value) {
    const auto id = source.name_ids.find(name);
    if (id != source.name_ids.end()) set(id->second, value);
  };
  std::vector<bool> used(arguments.named.size(), false);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const std::string_view name = source.names[parameters[i].name].view();
    std::optional<Value> value;
    if (i < arguments.positional.size()) value = arguments.positional[i];
    for (std::size_t n = 0; n < arguments.named.size(); ++n) {
      if (arguments.named[n].name != name) continue;
      if (value) fault("macro '{}' is given '{}' twice", definition.name, name);
      value = arguments.named[n].value;
      used[n] = true;
    }
    if (!value && parameters[i].otherwise) value = evaluate(*parameters[i].otherwise);
    set(parameters[i].name, value.value_or(Value::missing(source.names[parameters[i].name])));
  }
  Value caller;
  DictObject* kwargs = runtime.dict();
  for (std::size_t n = 0; n < arguments.named.size(); ++n) {
    if (used[n]) continue;
    if (arguments.named[n].name == "caller" && definition.uses_caller) {
      caller = arguments.named[n].value;
    } else if (definition.uses_kwargs && arguments.named[n].name != "caller") {
      kwargs->set(runtime, runtime.text_value(arguments.named[n].name), arguments.named[n].value);
    } else {
      fault("macro '{}' has no parameter '{}'", definition.name, arguments.named[n].name);
    }
  }
  if (arguments.positional.size() > parameters.size() && !definition.uses_varargs) {
    fault("macro '{}' takes at most {} arguments", definition.name, parameters.size());
  }
  if (definition.uses_varargs) {
    ListObject* varargs = runtime.list(ListFlavor::tuple);
    for (std::size_t i = parameters.size(); i < arguments.positional.size(); ++i) {
      varargs->push(runtime.heap(), arguments.positional[i]);
    }
    set_special("varargs", Value::list(varargs));
  }
  if (definition.uses_kwargs) set_special("kwargs", Value::dict(kwargs));
  if (caller.is_defined()) set_special("caller", caller);
}

}  // namespace quarrel::jinja
