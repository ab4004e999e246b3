// Macros and `loop` as values of the language.
#pragma once

#include <functional>

#include "text/jinja/ast.h"
#include "text/jinja/runtime.h"

namespace quarrel::jinja {

class Interpreter;
struct Scope;

class MacroObject : public HostObject {
 public:
  MacroObject(Interpreter& interpreter, const MacroDefinition& definition, Scope* scope)
      : interpreter_(interpreter), definition_(definition), scope_(scope) {}
  std::string_view type_name() const override { return "macro"; }
  Value call(Runtime& runtime, const Arguments& arguments) override;
  Value attribute(Runtime& runtime, std::string_view name) override;

 private:
  Interpreter& interpreter_;
  const MacroDefinition& definition_;
  Scope* scope_;  // where it was made: its names are visible in the body
};

// `loop` inside a for.
class LoopObject : public HostObject {
 public:
  explicit LoopObject(ListObject& items) : items_(items) {}
  std::string_view type_name() const override { return "loop"; }
  bool callable() const override { return false; }
  Value attribute(Runtime& runtime, std::string_view name) override;

  // loop.changed: whether these values differ from the last ones it was asked about.
  bool changed(Runtime& runtime, std::span<const Value> values);
  Value cycle(std::span<const Value> values) const;

  std::size_t index = 0;

 private:
  ListObject& items_;
  ListObject* last_ = nullptr;
};

// Sets a macro's parameters, and varargs, kwargs and caller where its body mentions them.
void bind_macro_arguments(Runtime& runtime, const Template& source, const MacroDefinition& definition,
                          const Arguments& arguments, const std::function<void(NameId, const Value&)>& set,
                          const std::function<Value(const Expression&)>& evaluate);

}  // namespace quarrel::jinja
