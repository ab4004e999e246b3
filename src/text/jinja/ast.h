// The tree a template is parsed into. Nodes know where they stand in the source; the parser bounds how deep they nest,
// so walking and destroying them recursively is safe. Immutable after parsing.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "text/jinja/filters.h"
#include "text/jinja/operations.h"
#include "text/jinja/predicates.h"
#include "text/jinja/value.h"

namespace quarrel::jinja {

using NameId = std::uint32_t;  // an index into Template::names

// ---- expressions

enum class ExpressionKind : std::uint8_t {
  constant,
  name,
  list,
  dict,
  attribute,
  subscript,
  slice,
  call,
  filter,
  test,
  sign,
  logical_not,
  arithmetic,
  concatenation,
  comparison,
  logical,
  conditional,
};

struct Expression {
  Expression(ExpressionKind k, std::size_t at) : kind(k), offset(at) {}
  Expression(const Expression&) = delete;
  Expression& operator=(const Expression&) = delete;
  virtual ~Expression() = default;

  const ExpressionKind kind;
  const std::size_t offset;  // in the source
  std::uint32_t height = 1;  // levels of expressions from here down
};
using ExpressionPtr = std::unique_ptr<Expression>;

struct Constant : Expression {
  Constant(std::size_t at, const Value& v) : Expression(ExpressionKind::constant, at), value(v) {}
  Value value;
};

struct Name : Expression {
  Name(std::size_t at, NameId i) : Expression(ExpressionKind::name, at), id(i) {}
  NameId id;
};

struct ListDisplay : Expression {
  ListDisplay(std::size_t at, ListFlavor f) : Expression(ExpressionKind::list, at), flavor(f) {}
  ListFlavor flavor;
  std::vector<ExpressionPtr> items;
};

struct DictDisplay : Expression {
  explicit DictDisplay(std::size_t at) : Expression(ExpressionKind::dict, at) {}
  std::vector<std::pair<ExpressionPtr, ExpressionPtr>> items;
};

struct Attribute : Expression {
  explicit Attribute(std::size_t at) : Expression(ExpressionKind::attribute, at) {}
  ExpressionPtr object;
  Text name;
};

struct Subscript : Expression {
  explicit Subscript(std::size_t at) : Expression(ExpressionKind::subscript, at) {}
  ExpressionPtr object;
  ExpressionPtr index;
};

// Parts that were left out are null.
struct Slice : Expression {
  explicit Slice(std::size_t at) : Expression(ExpressionKind::slice, at) {}
  ExpressionPtr object;
  ExpressionPtr start, stop, step;
};

struct CallArguments {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  ExpressionPtr more_positional;  // *list
  ExpressionPtr more_named;       // **dict
};

struct Call : Expression {
  explicit Call(std::size_t at) : Expression(ExpressionKind::call, at) {}
  ExpressionPtr callee;
  CallArguments arguments;
};

// A name no filter has leaves `function` null: it is an error only where it is reached.
struct Filter : Expression {
  explicit Filter(std::size_t at) : Expression(ExpressionKind::filter, at) {}
  ExpressionPtr input;  // null at the head of a filter block's chain
  std::string name;
  FilterFunction function = nullptr;
  CallArguments arguments;
};

struct Test : Expression {
  explicit Test(std::size_t at) : Expression(ExpressionKind::test, at) {}
  ExpressionPtr input;
  std::string name;
  PredicateFunction function = nullptr;
  CallArguments arguments;
};

struct Sign : Expression {
  Sign(std::size_t at, bool n) : Expression(ExpressionKind::sign, at), negative(n) {}
  bool negative;
  ExpressionPtr operand;
};

struct Not : Expression {
  explicit Not(std::size_t at) : Expression(ExpressionKind::logical_not, at) {}
  ExpressionPtr operand;
};

// first op operand op operand …, from left to right; long sums do not nest.
struct Arithmetic : Expression {
  explicit Arithmetic(std::size_t at) : Expression(ExpressionKind::arithmetic, at) {}
  struct Step {
    ArithmeticOp op;
    ExpressionPtr operand;
    std::size_t offset;
  };
  ExpressionPtr first;
  std::vector<Step> steps;
};

struct Concatenation : Expression {
  explicit Concatenation(std::size_t at) : Expression(ExpressionKind::concatenation, at) {}
  std::vector<ExpressionPtr> items;
};

enum class ComparisonOp : std::uint8_t { eq, ne, lt, le, gt, ge, in, not_in };

// a < b < c: every neighbouring pair must hold.
struct Comparison : Expression {
  explicit Comparison(std::size_t at) : Expression(ExpressionKind::comparison, at) {}
  ExpressionPtr first;
  std::vector<std::pair<ComparisonOp, ExpressionPtr>> steps;
};

struct Logical : Expression {
  Logical(std::size_t at, bool a) : Expression(ExpressionKind::logical, at), all(a) {}
  bool all;  // `and`; otherwise `or`
  std::vector<ExpressionPtr> items;
};

struct Conditional : Expression {
  explicit Conditional(std::size_t at) : Expression(ExpressionKind::conditional, at) {}
  ExpressionPtr condition;
  ExpressionPtr then;
  ExpressionPtr otherwise;  // may be null
};

// ---- statements

enum class StatementKind : std::uint8_t {
  data,
  output,
  branch,
  loop,
  assign,
  assign_block,
  macro,
  call_block,
  filter_block,
  scope,
  leave_loop,
};

struct Statement {
  Statement(StatementKind k, std::size_t at) : kind(k), offset(at) {}
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;
  virtual ~Statement() = default;

  const StatementKind kind;
  const std::size_t offset;
};
using StatementPtr = std::unique_ptr<Statement>;
using Body = std::vector<StatementPtr>;

// What an assignment assigns to: a name, a namespace's attribute, or several targets.
struct Target {
  NameId name = 0;
  std::optional<Text> attribute;
  std::vector<Target> parts;  // not empty: unpack into these
  bool is_tuple = false;
  std::size_t offset = 0;
};

struct Data : Statement {
  Data(std::size_t at, Text t) : Statement(StatementKind::data, at), text(t) {}
  Text text;
};

struct Output : Statement {
  Output(std::size_t at, ExpressionPtr e) : Statement(StatementKind::output, at), value(std::move(e)) {}
  ExpressionPtr value;
};

struct Branch : Statement {
  explicit Branch(std::size_t at) : Statement(StatementKind::branch, at) {}
  std::vector<std::pair<ExpressionPtr, Body>> arms;  // if and every elif
  Body otherwise;
};

struct Loop : Statement {
  explicit Loop(std::size_t at) : Statement(StatementKind::loop, at) {}
  Target target;
  ExpressionPtr source;
  ExpressionPtr filter;  // may be null
  Body body;
  Body otherwise;
};

struct Assign : Statement {
  explicit Assign(std::size_t at) : Statement(StatementKind::assign, at) {}
  Target target;
  ExpressionPtr value;
};

struct AssignBlock : Statement {
  explicit AssignBlock(std::size_t at) : Statement(StatementKind::assign_block, at) {}
  Target target;
  ExpressionPtr filter;  // a chain of filters, or null
  Body body;
};

struct MacroParameter {
  NameId name;
  ExpressionPtr otherwise;  // the default, or null
};

// The parts a macro and a call block share.
struct MacroDefinition {
  std::string name;
  std::vector<MacroParameter> parameters;
  Body body;
  bool uses_caller = false, uses_varargs = false, uses_kwargs = false;
};

struct Macro : Statement {
  explicit Macro(std::size_t at) : Statement(StatementKind::macro, at) {}
  NameId name = 0;
  MacroDefinition definition;
};

struct CallBlock : Statement {
  explicit CallBlock(std::size_t at) : Statement(StatementKind::call_block, at) {}
  MacroDefinition definition;
  std::unique_ptr<Call> call;
};

struct FilterBlock : Statement {
  explicit FilterBlock(std::size_t at) : Statement(StatementKind::filter_block, at) {}
  ExpressionPtr filter;
  Body body;
};

// `with`, `generation` and other blocks that only open a scope.
struct ScopeBlock : Statement {
  explicit ScopeBlock(std::size_t at) : Statement(StatementKind::scope, at) {}
  std::vector<std::pair<Target, ExpressionPtr>> values;
  Body body;
};

struct LeaveLoop : Statement {
  LeaveLoop(std::size_t at, bool e) : Statement(StatementKind::leave_loop, at), ends(e) {}
  bool ends;  // break; otherwise continue
};

// A parsed template with the constants its nodes point to.
struct Template {
  explicit Template(std::size_t constant_bytes) : constants(constant_bytes) {}

  Heap constants;
  std::vector<Text> names;
  std::unordered_map<std::string, NameId> name_ids;
  Body body;
};

}  // namespace quarrel::jinja
