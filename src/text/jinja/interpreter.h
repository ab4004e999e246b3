// Runs a parsed template. Statements are in interpreter.cpp, expressions in evaluation.cpp, macros and loops as values
// in interpreter_objects.{h,cpp}. One Interpreter a rendering; not thread-safe.
#pragma once

#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/runtime.h"

namespace quarrel::jinja {

// The names set in a loop's turn, a macro's call or a block. Names not found here are looked for outside.
struct Scope : Object {
  explicit Scope(Scope* p) : parent(p) {}

  struct Slot {
    NameId name;
    Value value;
  };
  Scope* parent;
  std::vector<Slot> slots;
  bool captured = false;  // a macro made here may still look into it
};

class Interpreter {
 public:
  Interpreter(Runtime& runtime, const Template& source);

  // A variable the template may use. Names it never mentions need not be set.
  void define(NameId name, const Value& value) { globals_[name] = value; }
  // The rendered text and where it came from.
  const StringBuffer& run();
  // Where in the source the interpreter stands: where a fault happened.
  std::size_t position() const noexcept { return position_; }

  // A macro's call: binds, runs the body and gives its text.
  Value call_macro(const MacroDefinition& definition, Scope* scope, const Arguments& arguments);

 private:
  enum class Flow : std::uint8_t { normal, broken, continued };

  // One level of nested work; throws Fault where there are too many.
  class Level {
   public:
    explicit Level(Interpreter& interpreter);
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;
    ~Level() { --interpreter_.level_; }

   private:
    Interpreter& interpreter_;
  };

  // Makes `scope` the innermost one for a while.
  class ScopeGuard {
   public:
    ScopeGuard(Interpreter& interpreter, Scope* scope) : interpreter_(interpreter), outer_(interpreter.scope_) {
      interpreter_.scope_ = scope;
    }
    ScopeGuard(const ScopeGuard&) = delete;
    ScopeGuard& operator=(const ScopeGuard&) = delete;
    ~ScopeGuard() { interpreter_.scope_ = outer_; }

   private:
    Interpreter& interpreter_;
    Scope* outer_;
  };

  // statements
  Flow run_body(const Body& body);
  Flow run_statement(const Statement& statement);
  Flow run_branch(const Branch& branch);
  Flow run_loop(const Loop& loop);
  ListObject& loop_items(const Loop& loop);
  Flow run_scope(const ScopeBlock& block);
  void run_output(const Output& output);
  void run_assign_block(const AssignBlock& block);
  void run_macro(const Macro& macro);
  void run_call_block(const CallBlock& block);
  void run_filter_block(const FilterBlock& block);
  // The text a body writes, in a scope of its own.
  Text capture(const Body& body, Scope* scope);
  void write(const Value& value);
  void check_output();

  // names
  Scope* open_scope(Scope* parent);
  Value look_up(NameId name);
  void set(Scope* scope, NameId name, const Value& value);
  void assign(const Target& target, const Value& value);

  // expressions
  Value evaluate(const Expression& expression);
  Value evaluate_list(const ListDisplay& display);
  Value evaluate_dict(const DictDisplay& display);
  Value evaluate_slice(const Slice& node);
  Value evaluate_call(const Call& call, const NamedValue* extra);
  Value evaluate_filter(const Filter& filter, const Value* block_text);
  bool evaluate_test(const Test& test);
  Value evaluate_arithmetic(const Arithmetic& node);
  Value evaluate_concatenation(const Concatenation& node);
  bool evaluate_comparison(const Comparison& node);
  Value evaluate_logical(const Logical& node);

  struct EvaluatedArguments {
    std::vector<Value> positional;
    std::vector<NamedValue> named;
    Arguments view() const { return {positional, named}; }
  };
  EvaluatedArguments evaluate_arguments(const CallArguments& arguments);

  Runtime& runtime_;
  const Template& template_;
  std::vector<Value> globals_;  // by NameId: variables, functions and what the template sets at its top
  Scope* scope_ = nullptr;      // null at the top
  TextBuilder output_;          // of the template
  TextBuilder* target_;         // where text goes now: the output or a capture
  std::size_t position_ = 0;
  std::uint32_t level_ = 0;
  std::uint32_t calls_ = 0;
};

}  // namespace quarrel::jinja
