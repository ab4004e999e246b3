// The expression half of the parser, from the loosest operator to the tightest. Chains of one operator become one node,
// so that a long sum is not a deep tree.
#include <algorithm>

#include "text/jinja/parser.h"

namespace quarrel::jinja {
namespace {

// Chains of attributes, calls and filters do nest to the left: how many, in units of the depth limit.
constexpr std::uint32_t kHeightPerDepth = 8;

struct NamedComparison {
  std::string_view text;
  ComparisonOp op;
};
constexpr NamedComparison kComparisons[] = {
    {"==", ComparisonOp::eq}, {"!=", ComparisonOp::ne}, {"<", ComparisonOp::lt},
    {"<=", ComparisonOp::le}, {">", ComparisonOp::gt},  {">=", ComparisonOp::ge},
};

}  // namespace

void Parser::raise(Expression& node, const Expression* child) const {
  if (child == nullptr) return;
  node.height = std::max(node.height, child->height + 1);
  if (node.height > limit_ * kHeightPerDepth) {
    throw Fault(fmt::format("an expression has more than {} levels", limit_ * kHeightPerDepth), node.offset);
  }
}

template <typename Node>
ExpressionPtr Parser::finish(std::unique_ptr<Node> node, std::initializer_list<const Expression*> children) {
  for (const Expression* child : children) raise(*node, child);
  return node;
}

template <typename Node>
ExpressionPtr Parser::finish(std::unique_ptr<Node> node, const CallArguments& arguments, const Expression* child) {
  raise(*node, child);
  for (const auto& argument : arguments.positional) raise(*node, argument.get());
  for (const auto& [name, argument] : arguments.named) raise(*node, argument.get());
  raise(*node, arguments.more_positional.get());
  raise(*node, arguments.more_named.get());
  return node;
}

ExpressionPtr Parser::expression() {
  const Nesting nesting(*this);
  ExpressionPtr node = logical_or();
  while (is_name("if")) {
    auto result = std::make_unique<Conditional>(advance().offset);
    result->then = std::move(node);
    result->condition = logical_or();
    if (skip_name("else")) result->otherwise = expression();
    const auto children = {result->then.get(), result->condition.get(), result->otherwise.get()};
    for (const Expression* child : children) raise(*result, child);
    node = std::move(result);
  }
  return node;
}

// One expression, or a tuple without parentheses.
ExpressionPtr Parser::tuple_or_expression() {
  ExpressionPtr first = expression();
  if (!is_op(",")) return first;
  auto tuple = std::make_unique<ListDisplay>(first->offset, ListFlavor::tuple);
  raise(*tuple, first.get());
  tuple->items.push_back(std::move(first));
  while (skip_op(",")) {
    const TokenType type = current().type;
    if (type == TokenType::variable_end || type == TokenType::block_end || is_op(")")) break;
    tuple->items.push_back(expression());
    raise(*tuple, tuple->items.back().get());
  }
  return tuple;
}

ExpressionPtr Parser::logical_or() {
  ExpressionPtr first = logical_and();
  if (!is_name("or")) return first;
  auto node = std::make_unique<Logical>(first->offset, false);
  raise(*node, first.get());
  node->items.push_back(std::move(first));
  while (skip_name("or")) {
    node->items.push_back(logical_and());
    raise(*node, node->items.back().get());
  }
  return node;
}

ExpressionPtr Parser::logical_and() {
  ExpressionPtr first = logical_not();
  if (!is_name("and")) return first;
  auto node = std::make_unique<Logical>(first->offset, true);
  raise(*node, first.get());
  node->items.push_back(std::move(first));
  while (skip_name("and")) {
    node->items.push_back(logical_not());
    raise(*node, node->items.back().get());
  }
  return node;
}

ExpressionPtr Parser::logical_not() {
  if (!is_name("not")) return comparison();
  const Nesting nesting(*this);
  auto node = std::make_unique<Not>(advance().offset);
  node->operand = logical_not();
  const Expression* operand = node->operand.get();
  return finish(std::move(node), {operand});
}

ExpressionPtr Parser::comparison() {
  ExpressionPtr first = sum();
  std::unique_ptr<Comparison> node;
  for (;;) {
    std::optional<ComparisonOp> op;
    for (const auto& candidate : kComparisons) {
      if (is_op(candidate.text)) op = candidate.op;
    }
    if (is_name("in")) op = ComparisonOp::in;
    const bool negated = is_name("not") && look().type == TokenType::name && look().text == "in";
    if (negated) op = ComparisonOp::not_in;
    if (!op) break;
    const std::size_t offset = advance().offset;
    if (negated) advance();
    if (!node) {
      node = std::make_unique<Comparison>(offset);
      raise(*node, first.get());
      node->first = std::move(first);
    }
    node->steps.emplace_back(*op, sum());
    raise(*node, node->steps.back().second.get());
  }
  if (node) return node;
  return first;
}

ExpressionPtr Parser::sum() {
  ExpressionPtr first = concatenation();
  if (!is_op("+") && !is_op("-")) return first;
  auto node = std::make_unique<Arithmetic>(current().offset);
  raise(*node, first.get());
  node->first = std::move(first);
  while (is_op("+") || is_op("-")) {
    const ArithmeticOp op = is_op("+") ? ArithmeticOp::add : ArithmeticOp::subtract;
    const std::size_t offset = advance().offset;
    node->steps.push_back({op, concatenation(), offset});
    raise(*node, node->steps.back().operand.get());
  }
  return node;
}

ExpressionPtr Parser::concatenation() {
  ExpressionPtr first = product();
  if (!is_op("~")) return first;
  auto node = std::make_unique<Concatenation>(current().offset);
  raise(*node, first.get());
  node->items.push_back(std::move(first));
  while (skip_op("~")) {
    node->items.push_back(product());
    raise(*node, node->items.back().get());
  }
  return node;
}

ExpressionPtr Parser::product() {
  ExpressionPtr first = power();
  std::unique_ptr<Arithmetic> node;
  for (;;) {
    std::optional<ArithmeticOp> op;
    if (is_op("*")) op = ArithmeticOp::multiply;
    if (is_op("/")) op = ArithmeticOp::divide;
    if (is_op("//")) op = ArithmeticOp::floor_divide;
    if (is_op("%")) op = ArithmeticOp::modulo;
    if (!op) break;
    const std::size_t offset = advance().offset;
    if (!node) {
      node = std::make_unique<Arithmetic>(offset);
      raise(*node, first.get());
      node->first = std::move(first);
    }
    node->steps.push_back({*op, power(), offset});
    raise(*node, node->steps.back().operand.get());
  }
  if (node) return node;
  return first;
}

// Left to right, unlike Python's: so Jinja reads it.
ExpressionPtr Parser::power() {
  ExpressionPtr first = unary(true);
  std::unique_ptr<Arithmetic> node;
  while (is_op("**")) {
    const std::size_t offset = advance().offset;
    if (!node) {
      node = std::make_unique<Arithmetic>(offset);
      raise(*node, first.get());
      node->first = std::move(first);
    }
    node->steps.push_back({ArithmeticOp::power, unary(true), offset});
    raise(*node, node->steps.back().operand.get());
  }
  if (node) return node;
  return first;
}

ExpressionPtr Parser::unary(bool with_filters) {
  ExpressionPtr node;
  if (is_op("-") || is_op("+")) {
    const Nesting nesting(*this);
    const bool negative = is_op("-");
    auto sign = std::make_unique<Sign>(advance().offset, negative);
    sign->operand = unary(false);
    const Expression* operand = sign->operand.get();
    node = finish(std::move(sign), {operand});
  } else {
    node = primary();
  }
  node = postfix(std::move(node));
  return with_filters ? filters_and_tests(std::move(node)) : std::move(node);
}

ExpressionPtr Parser::primary() {
  const Token& token = current();
  const std::size_t offset = token.offset;
  switch (token.type) {
    case TokenType::name: {
      advance();
      const std::string& name = token.text;
      if (name == "true" || name == "True") return std::make_unique<Constant>(offset, Value::boolean(true));
      if (name == "false" || name == "False") return std::make_unique<Constant>(offset, Value::boolean(false));
      if (name == "none" || name == "None") return std::make_unique<Constant>(offset, Value::none());
      for (MacroDefinition* macro : macros_) {
        macro->uses_caller = macro->uses_caller || name == "caller";
        macro->uses_varargs = macro->uses_varargs || name == "varargs";
        macro->uses_kwargs = macro->uses_kwargs || name == "kwargs";
      }
      return std::make_unique<Name>(offset, name_id(name));
    }
    case TokenType::string: {
      std::string text;
      while (current().type == TokenType::string) text += advance().text;
      return std::make_unique<Constant>(offset, Value::text(constant(text)));
    }
    case TokenType::integer: advance(); return std::make_unique<Constant>(offset, Value::integer(token.integer));
    case TokenType::floating: advance(); return std::make_unique<Constant>(offset, Value::floating(token.floating));
    default: break;
  }
  const Nesting nesting(*this);
  if (skip_op("(")) return parenthesized(offset);
  if (skip_op("[")) return list_display(offset);
  if (skip_op("{")) return dict_display(offset);
  unexpected("an expression");
}

ExpressionPtr Parser::parenthesized(std::size_t offset) {
  if (skip_op(")")) return std::make_unique<ListDisplay>(offset, ListFlavor::tuple);
  ExpressionPtr node = tuple_or_expression();
  expect_op(")");
  return node;
}

ExpressionPtr Parser::list_display(std::size_t offset) {
  auto node = std::make_unique<ListDisplay>(offset, ListFlavor::list);
  while (!is_op("]")) {
    if (!node->items.empty()) {
      expect_op(",");
      if (is_op("]")) break;
    }
    node->items.push_back(expression());
    raise(*node, node->items.back().get());
  }
  expect_op("]");
  return node;
}

ExpressionPtr Parser::dict_display(std::size_t offset) {
  auto node = std::make_unique<DictDisplay>(offset);
  while (!is_op("}")) {
    if (!node->items.empty()) {
      expect_op(",");
      if (is_op("}")) break;
    }
    ExpressionPtr key = expression();
    expect_op(":");
    ExpressionPtr value = expression();
    raise(*node, key.get());
    raise(*node, value.get());
    node->items.emplace_back(std::move(key), std::move(value));
  }
  expect_op("}");
  return node;
}

ExpressionPtr Parser::postfix(ExpressionPtr node) {
  for (;;) {
    if (is_op(".") || is_op("[")) {
      node = subscript(std::move(node));
    } else if (is_op("(")) {
      node = call(std::move(node));
    } else {
      return node;
    }
  }
}

ExpressionPtr Parser::subscript(ExpressionPtr node) {
  const Token& token = advance();
  if (token.text == ".") {
    if (current().type == TokenType::integer) {
      auto result = std::make_unique<Subscript>(token.offset);
      result->index = std::make_unique<Constant>(current().offset, Value::integer(current().integer));
      advance();
      raise(*result, node.get());
      result->object = std::move(node);
      return result;
    }
    auto result = std::make_unique<Attribute>(token.offset);
    result->name = constant(identifier());
    raise(*result, node.get());
    result->object = std::move(node);
    return result;
  }
  ExpressionPtr start;
  if (!is_op(":")) start = expression();
  if (!skip_op(":")) {
    auto result = std::make_unique<Subscript>(token.offset);
    result->index = std::move(start);
    expect_op("]");
    raise(*result, node.get());
    raise(*result, result->index.get());
    result->object = std::move(node);
    return result;
  }
  auto result = std::make_unique<Slice>(token.offset);
  result->start = std::move(start);
  if (!is_op(":") && !is_op("]")) result->stop = expression();
  if (skip_op(":") && !is_op("]")) result->step = expression();
  expect_op("]");
  for (const Expression* child : {node.get(), result->start.get(), result->stop.get(), result->step.get()}) {
    raise(*result, child);
  }
  result->object = std::move(node);
  return result;
}

ExpressionPtr Parser::filters_and_tests(ExpressionPtr node) {
  for (;;) {
    if (skip_op("|")) {
      node = filter(std::move(node));
    } else if (is_name("is")) {
      node = test(std::move(node));
    } else if (is_op("(")) {
      node = call(std::move(node));
    } else {
      return node;
    }
  }
}

std::string Parser::dotted_name() {
  std::string name = identifier();
  while (skip_op(".")) name += "." + identifier();
  return name;
}

ExpressionPtr Parser::filter(ExpressionPtr input) {
  auto result = std::make_unique<Filter>(current().offset);
  result->name = dotted_name();
  result->function = find_filter(result->name);
  if (is_op("(")) result->arguments = call_arguments();
  result->input = std::move(input);
  const Expression* child = result->input.get();
  const CallArguments& arguments = result->arguments;
  return finish(std::move(result), arguments, child);
}

// The filters of a block, whose input is the block's text.
ExpressionPtr Parser::filter_chain() {
  ExpressionPtr node = filter(nullptr);
  while (skip_op("|")) node = filter(std::move(node));
  return node;
}

ExpressionPtr Parser::test(ExpressionPtr input) {
  const std::size_t offset = advance().offset;
  const bool negated = skip_name("not");
  auto result = std::make_unique<Test>(offset);
  result->name = dotted_name();
  result->function = find_predicate(result->name);
  const TokenType type = current().type;
  const bool ends =
      is_name("else") || is_name("or") || is_name("and") || is_name("if") || is_name("in") || is_name("not");
  if (is_name("is")) throw Fault("tests with 'is' cannot be chained", current().offset);
  if (is_op("(")) {
    result->arguments = call_arguments();
  } else if (!ends && (type == TokenType::name || type == TokenType::string || type == TokenType::integer ||
                       type == TokenType::floating || is_op("[") || is_op("{"))) {
    result->arguments.positional.push_back(postfix(primary()));
  }
  result->input = std::move(input);
  const Expression* child = result->input.get();
  const CallArguments& arguments = result->arguments;
  ExpressionPtr node = finish(std::move(result), arguments, child);
  if (!negated) return node;
  auto inverse = std::make_unique<Not>(offset);
  inverse->operand = std::move(node);
  child = inverse->operand.get();
  return finish(std::move(inverse), {child});
}

ExpressionPtr Parser::call(ExpressionPtr callee) {
  auto result = std::make_unique<Call>(current().offset);
  result->arguments = call_arguments();
  result->callee = std::move(callee);
  const Expression* child = result->callee.get();
  const CallArguments& arguments = result->arguments;
  return finish(std::move(result), arguments, child);
}

CallArguments Parser::call_arguments() {
  const Nesting nesting(*this);
  const std::size_t offset = current().offset;
  CallArguments result;
  expect_op("(");
  for (bool first = true; !is_op(")"); first = false) {
    if (!first) {
      expect_op(",");
      if (is_op(")")) break;
    }
    const bool rest_given = result.more_positional || result.more_named;
    if (skip_op("*")) {
      if (rest_given) throw Fault("a call has too many '*'", offset);
      result.more_positional = expression();
    } else if (skip_op("**")) {
      if (result.more_named) throw Fault("a call has too many '**'", offset);
      result.more_named = expression();
    } else if (current().type == TokenType::name && look().type == TokenType::op && look().text == "=") {
      std::string name = advance().text;
      advance();
      result.named.emplace_back(std::move(name), expression());
    } else {
      if (rest_given || !result.named.empty()) throw Fault("a positional argument follows a named one", offset);
      result.positional.push_back(expression());
    }
  }
  expect_op(")");
  return result;
}

}  // namespace quarrel::jinja
