#include "server/text_api.h"

#include <fmt/format.h>

#include <array>
#include <iterator>
#include <utility>

#include "server/model_call.h"
#include "server/question.h"
#include "server/schema.h"
#include "text/unicode.h"

namespace quarrel {
namespace {

using http::Exchange;

// {"id","piece"}: a piece that is no whole text is the list of its bytes.
void append_piece(std::string& body, const Tokenizer& tokenizer, TokenId id) {
  const auto out = std::back_inserter(body);
  fmt::format_to(out, "{{\"id\":{},\"piece\":", id);
  const std::string piece = tokenizer.piece(id, false, true);
  if (to_valid_utf8(piece) == piece) {
    append_json_string(body, piece);
  } else {
    body.push_back('[');
    for (std::size_t i = 0; i < piece.size(); ++i) {
      fmt::format_to(out, "{}{}", i == 0 ? "" : ",", static_cast<unsigned>(static_cast<unsigned char>(piece[i])));
    }
    body.push_back(']');
  }
  body.push_back('}');
}

http::Response tokens_response(const TokenizeRequest& request, const LoadedModel& model) {
  const Tokenizer& tokenizer = model.require_tokenizer();
  const std::vector<TokenId> ids =
      tokenizer.encode(request.content, {.add_special = request.add_special, .parse_special = request.parse_special});
  // As text at once: JSON values of as many tokens as a long text has take a hundred times its size.
  std::string body = "{\"tokens\":[";
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (i > 0) body.push_back(',');
    if (request.with_pieces) {
      append_piece(body, tokenizer, ids[i]);
    } else {
      fmt::format_to(std::back_inserter(body), "{}", ids[i]);
    }
  }
  fmt::format_to(std::back_inserter(body), "],\"count\":{}}}", ids.size());
  return {.body = std::move(body)};
}

using TokenizeField = Field<TokenizeRequest>;

constexpr std::array kTokenizeFields = {
    TokenizeField{.name = "model",
                  .kind = FieldKind::text,
                  .help = "the model; without it the default one",
                  .read = [](const Json& v, TokenizeRequest& r) { r.model = as_text(v); }},
    TokenizeField{.name = "content",
                  .kind = FieldKind::text,
                  .help = "the text",
                  .read = [](const Json& v, TokenizeRequest& r) { r.content = as_text(v); }},
    TokenizeField{.name = "add_special",
                  .kind = FieldKind::boolean,
                  .help = "with the tokens that the vocabulary puts around a text",
                  .read = [](const Json& v, TokenizeRequest& r) { r.add_special = as_flag(v); }},
    TokenizeField{.name = "parse_special",
                  .kind = FieldKind::boolean,
                  .help = "the spelling of control tokens becomes those tokens",
                  .read = [](const Json& v, TokenizeRequest& r) { r.parse_special = as_flag(v); }},
    TokenizeField{.name = "with_pieces",
                  .kind = FieldKind::boolean,
                  .help = "each token with the text that it stands for",
                  .read = [](const Json& v, TokenizeRequest& r) { r.with_pieces = as_flag(v); }},
};

using DetokenizeField = Field<DetokenizeRequest>;

constexpr std::array kDetokenizeFields = {
    DetokenizeField{.name = "model",
                    .kind = FieldKind::text,
                    .help = "the model; without it the default one",
                    .read = [](const Json& v, DetokenizeRequest& r) { r.model = as_text(v); }},
    DetokenizeField{.name = "tokens",
                    .help = "ids of the vocabulary",
                    .read =
                        [](const Json& v, DetokenizeRequest& r) {
                          if (!v.is_array()) throw invalid_field("tokens", "'tokens' must be a list of token ids");
                          r.tokens = read_token_ids(v, "tokens");
                        },
                    .schema = [] { return schema::list(schema::integer()); }},
};

using TemplateField = Field<TemplateRequest>;

constexpr std::array kTemplateFields = {
    TemplateField{.name = "model",
                  .kind = FieldKind::text,
                  .help = "the model; without it the default one",
                  .read = [](const Json& v, TemplateRequest& r) { r.model = as_text(v); }},
    TemplateField{.name = "messages",
                  .help = "the conversation so far",
                  .read = [](const Json& v, TemplateRequest& r) { r.messages = read_conversation(v); },
                  .schema = conversation_schema},
    TemplateField{.name = "add_generation_prompt",
                  .kind = FieldKind::boolean,
                  .help = "ends where the answer begins",
                  .read = [](const Json& v, TemplateRequest& r) { r.add_generation_prompt = as_flag(v); }},
    TemplateField{.name = "chat_template_kwargs",
                  .help = "more variables of the template",
                  .read = [](const Json& v, TemplateRequest& r) { r.arguments = read_template_arguments(v); },
                  .schema = [] { return Json{{"type", "object"}}; }},
    TemplateField{.name = "tools", .kind = FieldKind::refused, .help = kNotOfferedYet},
};

}  // namespace

Json tokenize_schema() { return schema::request_of<TokenizeRequest>("TokenizeRequest", {"content"}, kTokenizeFields); }

TokenizeRequest read_tokenize(const Json& body) {
  TokenizeRequest request;
  read_fields<TokenizeRequest>(body, kTokenizeFields, request);
  if (!body.contains("content") || body["content"].is_null()) throw invalid_field("content", "'content' is missing");
  return request;
}

Json detokenize_schema() {
  return schema::request_of<DetokenizeRequest>("DetokenizeRequest", {"tokens"}, kDetokenizeFields);
}

DetokenizeRequest read_detokenize(const Json& body) {
  DetokenizeRequest request;
  read_fields<DetokenizeRequest>(body, kDetokenizeFields, request);
  if (!body.contains("tokens") || body["tokens"].is_null()) throw invalid_field("tokens", "'tokens' is missing");
  return request;
}

Json apply_template_schema() {
  return schema::request_of<TemplateRequest>("ApplyTemplateRequest", {"messages"}, kTemplateFields);
}

TemplateRequest read_apply_template(const Json& body) {
  TemplateRequest request;
  read_fields<TemplateRequest>(body, kTemplateFields, request);
  if (request.messages.is_null()) throw invalid_field("messages", "'messages' is missing");
  return request;
}

void tokenize(Service& service, const std::shared_ptr<Exchange>& exchange) {
  TokenizeRequest request = read_tokenize(parse_body(exchange->request().body));
  const OfferedModel model = service.find(request.model, *caller_of(*exchange));
  start_model_call(service, exchange, model, [request = std::move(request)](const LoadedModel& loaded) {
    return tokens_response(request, loaded);
  });
}

void detokenize(Service& service, const std::shared_ptr<Exchange>& exchange) {
  DetokenizeRequest request = read_detokenize(parse_body(exchange->request().body));
  const OfferedModel model = service.find(request.model, *caller_of(*exchange));
  start_model_call(service, exchange, model, [request = std::move(request)](const LoadedModel& loaded) {
    std::string body = "{\"content\":";
    append_json_string(body, to_valid_utf8(loaded.require_tokenizer().decode(request.tokens, true)));
    return http::Response{.body = body + "}"};
  });
}

void apply_template(Service& service, const std::shared_ptr<Exchange>& exchange) {
  TemplateRequest request = read_apply_template(parse_body(exchange->request().body));
  const OfferedModel model = service.find(request.model, *caller_of(*exchange));
  start_model_call(service, exchange, model, [request = std::move(request)](const LoadedModel& loaded) {
    const ChatInput input{.messages = with_system(loaded.system(), request.messages),
                          .arguments = request.arguments,
                          .add_generation_prompt = request.add_generation_prompt};
    const EncodedChat chat = render_chat(loaded, input);
    std::string body = "{\"prompt\":";
    append_json_string(body, to_valid_utf8(chat.text));
    return http::Response{.body = body + "}"};
  });
}

}  // namespace quarrel
