// Tokens to tree. A recursive descent parser with a depth limit; statements are in parser.cpp, expressions in
// parser_expressions.cpp.
#pragma once

#include <initializer_list>
#include <memory>
#include <string_view>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/lexer.h"

namespace quarrel::jinja {

// `source` is normalised. `depth` bounds how deep blocks and expressions nest. Throws Fault with an offset.
std::unique_ptr<Template> parse_template(std::string_view source, std::uint32_t depth);

class Parser {
 public:
  Parser(std::vector<Token> tokens, std::uint32_t depth, Template& result)
      : tokens_(std::move(tokens)), limit_(depth), template_(result) {}

  void run();

 private:
  // One level of nesting; throws Fault where there are too many.
  class Nesting {
   public:
    explicit Nesting(Parser& parser);
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;
    ~Nesting() { --parser_.depth_; }

   private:
    Parser& parser_;
  };

  // tokens
  const Token& current() const { return tokens_[at_]; }
  const Token& look() const { return tokens_[at_ + 1 < tokens_.size() ? at_ + 1 : at_]; }
  const Token& advance();
  bool is_op(std::string_view op) const;
  bool is_name(std::string_view name) const;
  bool skip_op(std::string_view op);
  bool skip_name(std::string_view name);
  void expect_op(std::string_view op);
  void expect_name(std::string_view name);
  void expect(TokenType type, std::string_view what);
  std::string identifier();
  [[noreturn]] void unexpected(std::string_view wanted) const;

  // statements
  Body statements_until(std::initializer_list<std::string_view> ends, std::size_t opened);
  Body body(std::string_view end, std::size_t opened);
  StatementPtr statement();
  StatementPtr branch(std::size_t offset);
  StatementPtr loop(std::size_t offset);
  StatementPtr assign(std::size_t offset);
  StatementPtr macro(std::size_t offset);
  StatementPtr call_block(std::size_t offset);
  StatementPtr filter_block(std::size_t offset);
  StatementPtr with_block(std::size_t offset);
  StatementPtr leave_loop(std::size_t offset, bool ends);
  void signature(MacroDefinition& definition);
  void macro_body(MacroDefinition& definition, std::string_view end, std::size_t opened);
  Target target(bool with_namespace);
  Target single_target(bool with_namespace);

  // expressions
  ExpressionPtr expression();
  ExpressionPtr tuple_or_expression();
  ExpressionPtr logical_or();
  ExpressionPtr logical_and();
  ExpressionPtr logical_not();
  ExpressionPtr comparison();
  ExpressionPtr sum();
  ExpressionPtr concatenation();
  ExpressionPtr product();
  ExpressionPtr power();
  ExpressionPtr unary(bool with_filters);
  ExpressionPtr primary();
  ExpressionPtr parenthesized(std::size_t offset);
  ExpressionPtr list_display(std::size_t offset);
  ExpressionPtr dict_display(std::size_t offset);
  ExpressionPtr postfix(ExpressionPtr node);
  ExpressionPtr subscript(ExpressionPtr node);
  ExpressionPtr filters_and_tests(ExpressionPtr node);
  ExpressionPtr filter(ExpressionPtr input);
  ExpressionPtr filter_chain();
  ExpressionPtr test(ExpressionPtr input);
  ExpressionPtr call(ExpressionPtr callee);
  CallArguments call_arguments();
  std::string dotted_name();

  // Sets a node's height from its children's and refuses trees that are too high.
  template <typename Node>
  ExpressionPtr finish(std::unique_ptr<Node> node, std::initializer_list<const Expression*> children);
  template <typename Node>
  ExpressionPtr finish(std::unique_ptr<Node> node, const CallArguments& arguments, const Expression* child);
  void raise(Expression& node, const Expression* child) const;

  NameId name_id(const std::string& name);
  Text constant(std::string_view text);

  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  std::uint32_t depth_ = 0;
  std::uint32_t limit_;
  std::uint32_t loops_ = 0;  // open around the current statement
  Template& template_;
  std::vector<MacroDefinition*> macros_;  // open around it, for noting which special names they use
};

}  // namespace quarrel::jinja
