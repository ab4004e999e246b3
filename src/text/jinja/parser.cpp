#include "text/jinja/parser.h"

#include <algorithm>

namespace quarrel::jinja {

Parser::Nesting::Nesting(Parser& parser) : parser_(parser) {
  if (parser_.depth_ >= parser_.limit_) {
    throw Fault(fmt::format("blocks and expressions nest more than {} deep", parser_.limit_), parser_.current().offset);
  }
  ++parser_.depth_;
}

// ---- tokens

const Token& Parser::advance() {
  const Token& token = tokens_[at_];
  if (at_ + 1 < tokens_.size()) ++at_;
  return token;
}

bool Parser::is_op(std::string_view op) const { return current().type == TokenType::op && current().text == op; }

bool Parser::is_name(std::string_view name) const {
  return current().type == TokenType::name && current().text == name;
}

bool Parser::skip_op(std::string_view op) {
  if (!is_op(op)) return false;
  advance();
  return true;
}

bool Parser::skip_name(std::string_view name) {
  if (!is_name(name)) return false;
  advance();
  return true;
}

void Parser::expect_op(std::string_view op) {
  if (!skip_op(op)) unexpected(fmt::format("'{}'", op));
}

void Parser::expect_name(std::string_view name) {
  if (!skip_name(name)) unexpected(fmt::format("'{}'", name));
}

void Parser::expect(TokenType type, std::string_view what) {
  if (current().type != type) unexpected(what);
  advance();
}

std::string Parser::identifier() {
  if (current().type != TokenType::name) unexpected("a name");
  return advance().text;
}

void Parser::unexpected(std::string_view wanted) const {
  const Token& token = current();
  std::string found;
  switch (token.type) {
    case TokenType::end: found = "the end of the template"; break;
    case TokenType::block_end: found = "the end of the tag"; break;
    case TokenType::variable_end: found = "the end of the expression"; break;
    case TokenType::string: found = "a string"; break;
    case TokenType::integer:
    case TokenType::floating: found = "a number"; break;
    default: found = fmt::format("'{}'", token.text.substr(0, 60)); break;
  }
  throw Fault(fmt::format("expected {}, found {}", wanted, found), token.offset);
}

NameId Parser::name_id(const std::string& name) {
  const auto [it, fresh] = template_.name_ids.emplace(name, static_cast<NameId>(template_.names.size()));
  if (fresh) template_.names.push_back(constant(name));
  return it->second;
}

Text Parser::constant(std::string_view text) {
  template_.constants.charge(text.size());
  auto* buffer = template_.constants.make<StringBuffer>();
  buffer->own = text;
  buffer->bytes = buffer->own;
  return {buffer, 0, text.size()};
}

// ---- statements

void Parser::run() {
  template_.body = statements_until({}, 0);
  if (current().type != TokenType::end) unexpected("the end of the template");
}

// Up to a tag that begins with one of `ends`; that name is the current token then. Without `ends`, up to the end.
Body Parser::statements_until(std::initializer_list<std::string_view> ends, std::size_t opened) {
  Body result;
  for (;;) {
    const Token& token = current();
    switch (token.type) {
      case TokenType::end:
        if (ends.size() == 0) return result;
        throw Fault(fmt::format("a block is not closed: '{}' is missing", *(ends.end() - 1)), opened);
      case TokenType::data:
        result.push_back(std::make_unique<Data>(token.offset, constant(token.text)));
        advance();
        break;
      case TokenType::variable_begin:
        advance();
        result.push_back(std::make_unique<Output>(token.offset, tuple_or_expression()));
        expect(TokenType::variable_end, "'}}'");
        break;
      case TokenType::block_begin:
        advance();
        if (std::any_of(ends.begin(), ends.end(), [this](std::string_view end) { return is_name(end); })) return result;
        result.push_back(statement());
        expect(TokenType::block_end, "'%}'");
        break;
      default: unexpected("text or a tag");
    }
  }
}

// The body of a block whose opening tag is read up to its end, and the name that closes it.
Body Parser::body(std::string_view end, std::size_t opened) {
  expect(TokenType::block_end, "'%}'");
  Body result = statements_until({end}, opened);
  advance();
  return result;
}

StatementPtr Parser::statement() {
  const Nesting nesting(*this);
  const std::size_t offset = current().offset;
  if (current().type != TokenType::name) unexpected("the name of a tag");
  const std::string name = advance().text;
  if (name == "if") return branch(offset);
  if (name == "for") return loop(offset);
  if (name == "set") return assign(offset);
  if (name == "macro") return macro(offset);
  if (name == "call") return call_block(offset);
  if (name == "filter") return filter_block(offset);
  if (name == "with") return with_block(offset);
  if (name == "break" || name == "continue") return leave_loop(offset, name == "break");
  if (name == "generation") {
    auto block = std::make_unique<ScopeBlock>(offset);
    block->body = body("endgeneration", offset);
    return block;
  }
  for (const std::string_view refused : {"include", "import", "from", "extends", "block"}) {
    if (name == refused) throw Fault(fmt::format("'{}' is not allowed: a chat template stands alone", name), offset);
  }
  throw Fault(fmt::format("there is no tag '{}'", name.substr(0, 60)), offset);
}

StatementPtr Parser::branch(std::size_t offset) {
  auto result = std::make_unique<Branch>(offset);
  for (;;) {
    ExpressionPtr condition = tuple_or_expression();
    expect(TokenType::block_end, "'%}'");
    result->arms.emplace_back(std::move(condition), statements_until({"elif", "else", "endif"}, offset));
    if (!skip_name("elif")) break;
  }
  if (skip_name("else")) {
    result->otherwise = body("endif", offset);
  } else {
    advance();
  }
  return result;
}

StatementPtr Parser::loop(std::size_t offset) {
  auto result = std::make_unique<Loop>(offset);
  result->target = target(false);
  expect_name("in");
  // Without a conditional expression: here `if` begins the filter.
  ExpressionPtr first = logical_or();
  if (is_op(",")) {
    auto tuple = std::make_unique<ListDisplay>(first->offset, ListFlavor::tuple);
    raise(*tuple, first.get());
    tuple->items.push_back(std::move(first));
    while (skip_op(",")) {
      if (current().type == TokenType::block_end || is_name("if") || is_name("recursive")) break;
      tuple->items.push_back(logical_or());
      raise(*tuple, tuple->items.back().get());
    }
    first = std::move(tuple);
  }
  result->source = std::move(first);
  if (skip_name("if")) result->filter = expression();
  skip_name("recursive");  // such a loop works as long as it does not call itself
  expect(TokenType::block_end, "'%}'");
  ++loops_;
  result->body = statements_until({"else", "endfor"}, offset);
  --loops_;
  if (skip_name("else")) {
    result->otherwise = body("endfor", offset);
  } else {
    advance();
  }
  return result;
}

StatementPtr Parser::assign(std::size_t offset) {
  Target where = target(true);
  if (skip_op("=")) {
    auto result = std::make_unique<Assign>(offset);
    result->target = std::move(where);
    result->value = tuple_or_expression();
    return result;
  }
  auto result = std::make_unique<AssignBlock>(offset);
  result->target = std::move(where);
  if (is_op("|")) {
    advance();
    result->filter = filter_chain();
  }
  result->body = body("endset", offset);
  return result;
}

void Parser::signature(MacroDefinition& definition) {
  expect_op("(");
  while (!is_op(")")) {
    if (!definition.parameters.empty()) {
      expect_op(",");
      if (is_op(")")) break;
    }
    const std::size_t offset = current().offset;
    MacroParameter parameter{name_id(identifier()), nullptr};
    if (skip_op("=")) {
      parameter.otherwise = expression();
    } else if (!definition.parameters.empty() && definition.parameters.back().otherwise) {
      throw Fault("a parameter without a default follows one with", offset);
    }
    definition.parameters.push_back(std::move(parameter));
  }
  expect_op(")");
}

void Parser::macro_body(MacroDefinition& definition, std::string_view end, std::size_t opened) {
  macros_.push_back(&definition);
  const std::uint32_t outer_loops = loops_;
  loops_ = 0;
  definition.body = body(end, opened);
  loops_ = outer_loops;
  macros_.pop_back();
}

StatementPtr Parser::macro(std::size_t offset) {
  auto result = std::make_unique<Macro>(offset);
  result->definition.name = identifier();
  result->name = name_id(result->definition.name);
  signature(result->definition);
  macro_body(result->definition, "endmacro", offset);
  return result;
}

StatementPtr Parser::call_block(std::size_t offset) {
  auto result = std::make_unique<CallBlock>(offset);
  result->definition.name = "caller";
  if (is_op("(")) signature(result->definition);
  ExpressionPtr called = expression();
  if (called->kind != ExpressionKind::call) throw Fault("a call block needs a call", called->offset);
  result->call.reset(static_cast<Call*>(called.release()));
  macro_body(result->definition, "endcall", offset);
  return result;
}

StatementPtr Parser::filter_block(std::size_t offset) {
  auto result = std::make_unique<FilterBlock>(offset);
  result->filter = filter_chain();
  result->body = body("endfilter", offset);
  return result;
}

StatementPtr Parser::with_block(std::size_t offset) {
  auto result = std::make_unique<ScopeBlock>(offset);
  while (current().type != TokenType::block_end) {
    if (!result->values.empty()) expect_op(",");
    Target where = target(false);
    expect_op("=");
    result->values.emplace_back(std::move(where), expression());
  }
  result->body = body("endwith", offset);
  return result;
}

StatementPtr Parser::leave_loop(std::size_t offset, bool ends) {
  if (loops_ == 0) throw Fault(fmt::format("'{}' outside a loop", ends ? "break" : "continue"), offset);
  return std::make_unique<LeaveLoop>(offset, ends);
}

Target Parser::single_target(bool with_namespace) {
  const Nesting nesting(*this);
  if (skip_op("(")) {
    Target result = target(with_namespace);
    expect_op(")");
    return result;
  }
  Target result;
  result.offset = current().offset;
  const std::string name = identifier();
  for (const std::string_view constant_name : {"true", "false", "none", "True", "False", "None"}) {
    if (name == constant_name) throw Fault(fmt::format("'{}' cannot be assigned to", name), result.offset);
  }
  result.name = name_id(name);
  if (with_namespace && skip_op(".")) result.attribute = constant(identifier());
  return result;
}

Target Parser::target(bool with_namespace) {
  Target first = single_target(with_namespace);
  if (!is_op(",")) return first;
  Target tuple;
  tuple.offset = first.offset;
  tuple.is_tuple = true;
  tuple.parts.push_back(std::move(first));
  while (skip_op(",")) {
    if (current().type != TokenType::name && !is_op("(")) break;
    if (is_name("in")) break;
    tuple.parts.push_back(single_target(with_namespace));
  }
  return tuple;
}

std::unique_ptr<Template> parse_template(std::string_view source, std::uint32_t depth) {
  // Constants take at most a small object for each few bytes of source; the caller has bounded those.
  auto result = std::make_unique<Template>((source.size() + 64) * 256);
  Parser(tokenize(source), depth, *result).run();
  return result;
}

}  // namespace quarrel::jinja
