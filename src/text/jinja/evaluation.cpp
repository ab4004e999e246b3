// The expression half of the interpreter.
#include "text/jinja/interpreter.h"
#include "text/jinja/methods.h"
#include "text/jinja/operations.h"

namespace quarrel::jinja {

Value Interpreter::evaluate(const Expression& expression) {
  // The leaves take no fuel: what holds them does.
  if (expression.kind == ExpressionKind::constant) return static_cast<const Constant&>(expression).value;
  if (expression.kind == ExpressionKind::name) return look_up(static_cast<const Name&>(expression).id);
  const Level level(*this);
  runtime_.spend(1);
  switch (expression.kind) {
    case ExpressionKind::list: return evaluate_list(static_cast<const ListDisplay&>(expression));
    case ExpressionKind::dict: return evaluate_dict(static_cast<const DictDisplay&>(expression));
    case ExpressionKind::attribute: {
      const auto& node = static_cast<const Attribute&>(expression);
      const Value object = evaluate(*node.object);
      position_ = node.offset;
      return attribute(runtime_, object, node.name);
    }
    case ExpressionKind::subscript: {
      const auto& node = static_cast<const Subscript&>(expression);
      const Value object = evaluate(*node.object);
      const Value index = evaluate(*node.index);
      position_ = node.offset;
      return item(runtime_, object, index);
    }
    case ExpressionKind::slice: return evaluate_slice(static_cast<const Slice&>(expression));
    case ExpressionKind::call: return evaluate_call(static_cast<const Call&>(expression), nullptr);
    case ExpressionKind::filter: return evaluate_filter(static_cast<const Filter&>(expression), nullptr);
    case ExpressionKind::test: return Value::boolean(evaluate_test(static_cast<const Test&>(expression)));
    case ExpressionKind::sign: {
      const auto& node = static_cast<const Sign&>(expression);
      const Value operand = evaluate(*node.operand);
      position_ = node.offset;
      return node.negative ? negate(operand) : plus(operand);
    }
    case ExpressionKind::logical_not:
      return Value::boolean(!truth(evaluate(*static_cast<const Not&>(expression).operand)));
    case ExpressionKind::arithmetic: return evaluate_arithmetic(static_cast<const Arithmetic&>(expression));
    case ExpressionKind::concatenation: return evaluate_concatenation(static_cast<const Concatenation&>(expression));
    case ExpressionKind::comparison:
      return Value::boolean(evaluate_comparison(static_cast<const Comparison&>(expression)));
    case ExpressionKind::logical: return evaluate_logical(static_cast<const Logical&>(expression));
    case ExpressionKind::conditional: {
      const auto& node = static_cast<const Conditional&>(expression);
      if (truth(evaluate(*node.condition))) return evaluate(*node.then);
      return node.otherwise ? evaluate(*node.otherwise) : Value{};
    }
    default: return {};
  }
}

Value Interpreter::evaluate_list(const ListDisplay& display) {
  ListObject* list = runtime_.list(display.flavor);
  runtime_.spend(display.items.size());
  for (const ExpressionPtr& element : display.items) list->push(runtime_.heap(), evaluate(*element));
  return Value::list(list);
}

Value Interpreter::evaluate_dict(const DictDisplay& display) {
  DictObject* dict = runtime_.dict();
  runtime_.spend(display.items.size());
  for (const auto& [key, value] : display.items) {
    const Value name = evaluate(*key);
    const Value element = evaluate(*value);
    position_ = key->offset;
    dict->set(runtime_, name, element);
  }
  return Value::dict(dict);
}

Value Interpreter::evaluate_slice(const Slice& node) {
  const auto part = [this](const ExpressionPtr& bound) { return bound ? evaluate(*bound) : Value::none(); };
  const Value object = evaluate(*node.object);
  const Value start = part(node.start);
  const Value stop = part(node.stop);
  const Value step = part(node.step);
  position_ = node.offset;
  return slice(runtime_, object, start, stop, step);
}

Interpreter::EvaluatedArguments Interpreter::evaluate_arguments(const CallArguments& arguments) {
  EvaluatedArguments result;
  runtime_.spend(arguments.positional.size() + arguments.named.size());
  for (const ExpressionPtr& argument : arguments.positional) result.positional.push_back(evaluate(*argument));
  for (const auto& [name, argument] : arguments.named) result.named.push_back({name, evaluate(*argument)});
  if (arguments.more_positional) {
    const ListObject& more = elements(runtime_, evaluate(*arguments.more_positional));
    runtime_.spend(more.items.size());
    result.positional.insert(result.positional.end(), more.items.begin(), more.items.end());
  }
  if (arguments.more_named) {
    const Value more = evaluate(*arguments.more_named);
    if (!more.is(Kind::dict)) fault("'**' takes a dict, not {}", a_type(more));
    runtime_.spend(more.as_dict().entries.size());
    for (const auto& entry : more.as_dict().entries) {
      if (!entry.key.is(Kind::text)) fault("'**' takes a dict whose keys are strings");
      // A copy: the key's own buffer may grow, and move, before the name is read.
      const Text name = runtime_.text(std::string(entry.key.view()), Origin::of_variables);
      result.named.push_back({name.view(), entry.value});
    }
  }
  return result;
}

Value Interpreter::evaluate_call(const Call& call, const NamedValue* extra) {
  // A method's call needs no object for the method.
  if (call.callee->kind == ExpressionKind::attribute && extra == nullptr) {
    const auto& callee = static_cast<const Attribute&>(*call.callee);
    const Value object = evaluate(*callee.object);
    if (const MethodFunction method = find_method(object, callee.name.view())) {
      const EvaluatedArguments arguments = evaluate_arguments(call.arguments);
      position_ = callee.offset;
      return method(runtime_, object, arguments.view());
    }
    position_ = callee.offset;
    const Value function = attribute(runtime_, object, callee.name);
    const EvaluatedArguments arguments = evaluate_arguments(call.arguments);
    position_ = callee.offset;
    if (function.is(Kind::host)) return function.as_host().call(runtime_, arguments.view());
    if (!function.is_defined()) {
      fault("{} has no '{}' to call", a_type(object), callee.name.view());
    }
    fault("{} cannot be called", a_type(function));
  }
  const Value function = evaluate(*call.callee);
  EvaluatedArguments arguments = evaluate_arguments(call.arguments);
  if (extra != nullptr) arguments.named.push_back(*extra);
  position_ = call.callee->offset;
  if (!function.is_defined()) fail_undefined(function);
  if (!function.is(Kind::host)) fault("{} cannot be called", a_type(function));
  return function.as_host().call(runtime_, arguments.view());
}

Value Interpreter::evaluate_filter(const Filter& filter, const Value* block_text) {
  const Level level(*this);
  Value input;
  if (!filter.input) {
    input = *block_text;
  } else if (block_text != nullptr) {
    input = evaluate_filter(static_cast<const Filter&>(*filter.input), block_text);
  } else {
    input = evaluate(*filter.input);
  }
  const EvaluatedArguments arguments = evaluate_arguments(filter.arguments);
  position_ = filter.offset;
  if (filter.function == nullptr) fault("there is no filter '{}'", filter.name);
  return filter.function(runtime_, input, arguments.view());
}

bool Interpreter::evaluate_test(const Test& test) {
  const Value input = evaluate(*test.input);
  const EvaluatedArguments arguments = evaluate_arguments(test.arguments);
  position_ = test.offset;
  if (test.function == nullptr) fault("there is no test '{}'", test.name);
  return test.function(runtime_, input, arguments.view());
}

Value Interpreter::evaluate_arithmetic(const Arithmetic& node) {
  Value result = evaluate(*node.first);
  for (const Arithmetic::Step& step : node.steps) {
    const Value operand = evaluate(*step.operand);
    runtime_.spend(1);
    position_ = step.offset;
    result = arithmetic(runtime_, step.op, result, operand);
  }
  return result;
}

Value Interpreter::evaluate_concatenation(const Concatenation& node) {
  Text text;
  bool first = true;
  for (const ExpressionPtr& element : node.items) {
    const Value value = evaluate(*element);
    runtime_.spend(1);
    position_ = element->offset;
    const Text piece = to_text(runtime_, value);
    text = first ? piece : concatenate(runtime_, text, piece);
    first = false;
  }
  return Value::text(text);
}

bool Interpreter::evaluate_comparison(const Comparison& node) {
  Value left = evaluate(*node.first);
  for (const auto& [op, operand] : node.steps) {
    const Value right = evaluate(*operand);
    runtime_.spend(1);
    position_ = node.offset;
    bool holds = false;
    switch (op) {
      case ComparisonOp::eq: holds = equal(runtime_, left, right); break;
      case ComparisonOp::ne: holds = !equal(runtime_, left, right); break;
      case ComparisonOp::lt: holds = compare(runtime_, left, right) < 0; break;
      case ComparisonOp::le: holds = compare(runtime_, left, right) <= 0; break;
      case ComparisonOp::gt: holds = compare(runtime_, left, right) > 0; break;
      case ComparisonOp::ge: holds = compare(runtime_, left, right) >= 0; break;
      case ComparisonOp::in: holds = contains(runtime_, right, left); break;
      case ComparisonOp::not_in: holds = !contains(runtime_, right, left); break;
    }
    if (!holds) return false;
    left = right;
  }
  return true;
}

Value Interpreter::evaluate_logical(const Logical& node) {
  Value value;
  for (const ExpressionPtr& element : node.items) {
    value = evaluate(*element);
    if (truth(value) != node.all) return value;
  }
  return value;
}

}  // namespace quarrel::jinja
