// What a model makes of a text before it computes anything: tokens, text again, a rendered conversation; as llama.cpp's
// server has it. Handlers of the rows in routes.cpp; what they throw is answered as plain_error says.
#pragma once

#include <memory>

#include "server/fields.h"
#include "server/http/exchange.h"
#include "server/service.h"

namespace quarrel {

struct TokenizeRequest {
  std::string model = {};
  std::string content = {};
  bool add_special = false;   // the tokens that the vocabulary puts around a text
  bool parse_special = true;  // the spelling of control tokens becomes those tokens
  bool with_pieces = false;   // each token with the text it stands for
};
struct DetokenizeRequest {
  std::string model = {};
  std::vector<TokenId> tokens = {};
};
struct TemplateRequest {
  std::string model = {};
  Json messages = nullptr;
  Json arguments = nullptr;  // more variables of the template's own
  bool add_generation_prompt = true;
};

// Throw ApiError that names the field.
TokenizeRequest read_tokenize(const Json& body);
DetokenizeRequest read_detokenize(const Json& body);
TemplateRequest read_apply_template(const Json& body);

// What they take.
Json tokenize_schema();
Json detokenize_schema();
Json apply_template_schema();

void tokenize(Service& service, const std::shared_ptr<http::Exchange>& exchange);
void detokenize(Service& service, const std::shared_ptr<http::Exchange>& exchange);
void apply_template(Service& service, const std::shared_ptr<http::Exchange>& exchange);

}  // namespace quarrel
