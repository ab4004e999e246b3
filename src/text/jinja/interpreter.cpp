#include "text/jinja/interpreter.h"

#include "text/jinja/globals.h"
#include "text/jinja/interpreter_objects.h"
#include "text/jinja/operations.h"

namespace quarrel::jinja {
namespace {

// A macro's call passes through several blocks and expressions: levels allowed for each call allowed.
constexpr std::uint32_t kLevelsPerCall = 16;

}  // namespace

Interpreter::Level::Level(Interpreter& interpreter) : interpreter_(interpreter) {
  const std::uint32_t limit = interpreter_.runtime_.limits().depth * kLevelsPerCall;
  if (interpreter_.level_ >= limit) fault("the template nests more than {} levels deep", limit);
  ++interpreter_.level_;
}

Interpreter::Interpreter(Runtime& runtime, const Template& source)
    : runtime_(runtime), template_(source), globals_(source.names.size()), output_(runtime), target_(&output_) {
  for (NameId id = 0; id < source.names.size(); ++id) {
    const Value function = global_function(runtime, source.names[id].view());
    globals_[id] = function.is_defined() ? function : Value::missing(source.names[id]);
  }
}

const StringBuffer& Interpreter::run() {
  run_body(template_.body);
  return output_.buffer();
}

// ---- names

Scope* Interpreter::open_scope(Scope* parent) { return runtime_.heap().make<Scope>(parent); }

Value Interpreter::look_up(NameId name) {
  std::size_t looked = 0;
  for (Scope* scope = scope_; scope != nullptr; scope = scope->parent) {
    looked += scope->slots.size();
    for (const Scope::Slot& slot : scope->slots) {
      if (slot.name == name) return slot.value;
    }
  }
  runtime_.spend_items(looked);
  return globals_[name];
}

void Interpreter::set(Scope* scope, NameId name, const Value& value) {
  if (scope == nullptr) {
    globals_[name] = value;
    return;
  }
  runtime_.spend_items(scope->slots.size());
  for (Scope::Slot& slot : scope->slots) {
    if (slot.name == name) {
      slot.value = value;
      return;
    }
  }
  runtime_.heap().charge(sizeof(Scope::Slot) * 2);
  scope->slots.push_back({name, value});
}

void Interpreter::assign(const Target& target, const Value& value) {
  position_ = target.offset;
  if (target.is_tuple) {
    const ListObject& list = elements(runtime_, value);
    if (list.items.size() != target.parts.size()) {
      fault("{} values do not fit {} names", list.items.size(), target.parts.size());
    }
    const std::vector<Value> items = list.items;  // assigning may change the list
    for (std::size_t i = 0; i < items.size(); ++i) assign(target.parts[i], items[i]);
    return;
  }
  if (!target.attribute) {
    set(scope_, target.name, value);
    return;
  }
  const Value space = look_up(target.name);
  if (!space.is(Kind::space)) fault("only a namespace's attributes can be set, not those of {}", a_type(space));
  space.as_dict().set(runtime_, Value::text(*target.attribute), value);
}

// ---- statements

Interpreter::Flow Interpreter::run_body(const Body& body) {
  for (const StatementPtr& statement : body) {
    const Flow flow = run_statement(*statement);
    if (flow != Flow::normal) return flow;
  }
  return Flow::normal;
}

Interpreter::Flow Interpreter::run_statement(const Statement& statement) {
  const Level level(*this);
  position_ = statement.offset;
  runtime_.spend(1);
  switch (statement.kind) {
    case StatementKind::data:
      target_->append(static_cast<const Data&>(statement).text);
      check_output();
      return Flow::normal;
    case StatementKind::output: run_output(static_cast<const Output&>(statement)); return Flow::normal;
    case StatementKind::branch: return run_branch(static_cast<const Branch&>(statement));
    case StatementKind::loop: return run_loop(static_cast<const Loop&>(statement));
    case StatementKind::assign: {
      const auto& node = static_cast<const Assign&>(statement);
      assign(node.target, evaluate(*node.value));
      return Flow::normal;
    }
    case StatementKind::assign_block: run_assign_block(static_cast<const AssignBlock&>(statement)); return Flow::normal;
    case StatementKind::macro: run_macro(static_cast<const Macro&>(statement)); return Flow::normal;
    case StatementKind::call_block: run_call_block(static_cast<const CallBlock&>(statement)); return Flow::normal;
    case StatementKind::filter_block: run_filter_block(static_cast<const FilterBlock&>(statement)); return Flow::normal;
    case StatementKind::scope: return run_scope(static_cast<const ScopeBlock&>(statement));
    case StatementKind::leave_loop:
      return static_cast<const LeaveLoop&>(statement).ends ? Flow::broken : Flow::continued;
  }
  return Flow::normal;
}

void Interpreter::write(const Value& value) {
  append_text(*target_, runtime_, value);
  check_output();
}

void Interpreter::check_output() {
  if (output_.size() > runtime_.limits().output_bytes) {
    fault("the rendered text is longer than {} bytes", runtime_.limits().output_bytes);
  }
}

void Interpreter::run_output(const Output& output) {
  const Value value = evaluate(*output.value);
  position_ = output.offset;
  write(value);
}

Interpreter::Flow Interpreter::run_branch(const Branch& branch) {
  for (const auto& [condition, body] : branch.arms) {
    if (truth(evaluate(*condition))) return run_body(body);
  }
  return run_body(branch.otherwise);
}

// What the loop goes through, after its filter.
ListObject& Interpreter::loop_items(const Loop& loop) {
  const Value source = evaluate(*loop.source);
  position_ = loop.source->offset;
  ListObject& all = elements(runtime_, source);
  if (!loop.filter) return all;
  ListObject* chosen = runtime_.list();
  Scope* scope = open_scope(scope_);
  const ScopeGuard guard(*this, scope);
  for (std::size_t i = 0; i < all.items.size(); ++i) {
    const Value element = all.items[i];
    runtime_.spend(1);
    assign(loop.target, element);
    if (truth(evaluate(*loop.filter))) chosen->push(runtime_.heap(), element);
  }
  return *chosen;
}

Interpreter::Flow Interpreter::run_loop(const Loop& loop) {
  ListObject& items = loop_items(loop);
  if (items.items.empty()) return run_body(loop.otherwise);
  const auto name = template_.name_ids.find("loop");
  auto* state = runtime_.heap().make<LoopObject>(items);
  Scope* scope = nullptr;
  // By index: the body may change the list it goes through.
  for (std::size_t i = 0; i < items.items.size(); ++i) {
    runtime_.spend(1);
    if (scope == nullptr || scope->captured) scope = open_scope(scope_);
    scope->slots.clear();
    const ScopeGuard guard(*this, scope);
    state->index = i;
    if (name != template_.name_ids.end()) set(scope, name->second, Value::host(state));
    assign(loop.target, Value(items.items[i]));
    if (run_body(loop.body) == Flow::broken) break;
  }
  return Flow::normal;
}

Interpreter::Flow Interpreter::run_scope(const ScopeBlock& block) {
  Scope* scope = open_scope(scope_);
  std::vector<Value> values;
  values.reserve(block.values.size());
  for (const auto& [target, value] : block.values) values.push_back(evaluate(*value));
  const ScopeGuard guard(*this, scope);
  for (std::size_t i = 0; i < values.size(); ++i) assign(block.values[i].first, values[i]);
  return run_body(block.body);
}

Text Interpreter::capture(const Body& body, Scope* scope) {
  TextBuilder text(runtime_);
  TextBuilder* const outer = target_;
  const ScopeGuard guard(*this, scope);
  target_ = &text;
  run_body(body);
  target_ = outer;
  return text.finish();
}

void Interpreter::run_assign_block(const AssignBlock& block) {
  Value value = Value::text(capture(block.body, open_scope(scope_)));
  if (block.filter) value = evaluate_filter(static_cast<const Filter&>(*block.filter), &value);
  assign(block.target, value);
}

void Interpreter::run_macro(const Macro& macro) {
  for (Scope* scope = scope_; scope != nullptr; scope = scope->parent) scope->captured = true;
  set(scope_, macro.name, Value::host(runtime_.heap().make<MacroObject>(*this, macro.definition, scope_)));
}

void Interpreter::run_call_block(const CallBlock& block) {
  for (Scope* scope = scope_; scope != nullptr; scope = scope->parent) scope->captured = true;
  const Value caller = Value::host(runtime_.heap().make<MacroObject>(*this, block.definition, scope_));
  const NamedValue extra{"caller", caller};
  const Value text = evaluate_call(*block.call, &extra);
  position_ = block.offset;
  write(text);
}

void Interpreter::run_filter_block(const FilterBlock& block) {
  const Value text = Value::text(capture(block.body, open_scope(scope_)));
  write(evaluate_filter(static_cast<const Filter&>(*block.filter), &text));
}

Value Interpreter::call_macro(const MacroDefinition& definition, Scope* scope, const Arguments& arguments) {
  const std::uint32_t limit = runtime_.limits().depth;
  if (calls_ >= limit) fault("macros call each other more than {} deep", limit);
  const Level level(*this);
  const std::size_t called_at = position_;
  Scope* inner = open_scope(scope);
  const ScopeGuard guard(*this, inner);
  ++calls_;
  bind_macro_arguments(
      runtime_, template_, definition, arguments, [&](NameId name, const Value& value) { set(inner, name, value); },
      [&](const Expression& otherwise) { return evaluate(otherwise); });
  const Text text = capture(definition.body, inner);
  --calls_;
  position_ = called_at;
  return Value::text(text);
}

}  // namespace quarrel::jinja
