// What clients send with every question: the same list in every form, whoever reads it.
#include "server/known_fields.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "server/native_request.h"
#include "server/ollama_request.h"
#include "server/openai_request.h"

namespace quarrel {
namespace {

struct Form {
  const char* name;
  Json schema;
  const char* question;
  std::function<void(const Json&)> read;
};

template <typename Request>
std::function<void(const Json&)> reader(Request (*read)(const Json&)) {
  return [read](const Json& body) { static_cast<void>(read(body)); };
}

std::vector<Form> forms() {
  constexpr const char* kMessages = R"({"messages":[{"role":"user","content":"a"}]})";
  constexpr const char* kPrompt = R"({"prompt":"a"})";
  constexpr const char* kInput = R"({"input":"a"})";
  return {{"chat", chat_request_schema(), kMessages, reader(read_chat_request)},
          {"completion", completion_request_schema(), kPrompt, reader(read_completion_request)},
          {"embedding", embedding_request_schema(), kInput, reader(read_embedding_request)},
          {"native", native_request_schema(), kPrompt, reader(read_native_request)},
          {"ollama generate", ollama_generate_schema(), kPrompt, reader(read_ollama_generate)},
          {"ollama chat", ollama_chat_schema(), kMessages, reader(read_ollama_chat)},
          {"ollama embed", ollama_embed_schema(), kInput, reader(read_ollama_embed)},
          {"ollama embeddings", ollama_embeddings_schema(), kPrompt, reader(read_ollama_embeddings)}};
}

std::vector<Json> neutral_values() { return {nullptr, false, Json::array(), Json::object(), "", "text"}; }

// The field that the question is refused for; empty: it is taken.
std::string refused(const Form& form, const std::string& field, const Json& value) {
  Json body = Json::parse(form.question);
  body[field] = value;
  try {
    form.read(body);
  } catch (const ApiError& error) {
    EXPECT_EQ(error.status, 400u);
    return error.param.empty() ? error.code : error.param;
  }
  return {};
}

TEST(KnownFields, WithoutEffectAreTakenInEveryForm) {
  std::size_t fields = 0;
  for (const KnownField& field : known_fields()) {
    if (field.kind != FieldKind::no_effect) continue;
    ++fields;
    for (const Form& form : forms()) {
      for (const Json& value : {Json("x"), Json(1), Json(true), Json{{"a", 1}}, Json::array({1}), Json(nullptr)}) {
        EXPECT_EQ(refused(form, std::string(field.name), value), "") << form.name << " " << value.dump();
      }
      EXPECT_TRUE(form.schema["properties"].contains(field.name))
          << form.name << " is described without " << field.name;
    }
  }
  EXPECT_GE(fields, 20u);
}

TEST(KnownFields, NotOfferedTakeWhatAsksForNothing) {
  for (const KnownField& field : known_fields()) {
    if (field.kind != FieldKind::refused) continue;
    const std::string name(field.name);
    for (const Form& form : forms()) {
      EXPECT_EQ(refused(form, name, nullptr), "") << form.name << " " << name;
      if (form.schema["properties"].contains(name)) continue;  // it offers it, and says what it takes
      for (const Json& value : neutral_values()) {
        if (field.nothing != Nothing::any) continue;
        EXPECT_EQ(refused(form, name, value), "") << form.name << " " << name << " " << value.dump();
      }
      EXPECT_EQ(refused(form, name, "what it would be"), name) << form.name;
      EXPECT_EQ(refused(form, name, 77), name) << form.name;
    }
  }
}

// A form that shares its path with another one must not take what neither of them describes.
TEST(KnownFields, OfAnotherFormAreNothingOnlyInItsOwnWay) {
  const std::vector<Json> nothings{false, "", Json::array(), Json::object()};
  const auto taken = [&](const std::string& field) {
    const std::vector<Form> all = forms();
    const auto native = std::ranges::find(all, "native", &Form::name);
    std::vector<Json> values;
    for (const Json& value : nothings) {
      if (refused(*native, field, value).empty()) values.push_back(value);
    }
    return values;
  };
  EXPECT_EQ(taken("context"), std::vector<Json>{Json::array()});
  EXPECT_EQ(taken("options"), std::vector<Json>{Json::object()});
  EXPECT_EQ(taken("raw"), std::vector<Json>{false});
  EXPECT_EQ(taken("keep_alive"), std::vector<Json>{""});
  EXPECT_TRUE(taken("num_ctx").empty());
  EXPECT_EQ(taken("images"), nothings) << "no form offers them";
}

// A field that one form gets has its place in the list.
TEST(KnownFields, AreAllThatAFormHas) {
  std::vector<Form> all = forms();
  for (const Form& owner : all) {
    for (const auto& field : owner.schema["properties"].items()) {
      for (const Form& form : all) {
        // What is asked itself may not be null where it is read.
        if (form.schema["properties"].contains(field.key())) continue;
        EXPECT_EQ(refused(form, field.key(), nullptr), "") << form.name << " does not know it of " << owner.name;
      }
    }
  }
  const Json options = ollama_options_schema();
  for (const auto& field : options["properties"].items()) {
    for (const Form& form : all) EXPECT_EQ(refused(form, field.key(), nullptr), "") << form.name;
  }
}

TEST(KnownFields, NobodyElseIsTakenForOne) {
  for (const Form& form : forms()) {
    for (const Json& value : neutral_values()) EXPECT_EQ(refused(form, "no_such_field", value), "no_such_field");
    for (const char* question : {"messages", "prompt", "input"}) {
      if (Json::parse(form.question).contains(question)) continue;
      EXPECT_EQ(refused(form, question, "a"), question) << form.name;
      EXPECT_EQ(refused(form, question, Json::array()), question) << form.name;
    }
  }
}

// Found by hand with real clients.
TEST(KnownFields, AskForWhatIsSoAnyway) {
  const auto taken = [](const char* form, const char* field, const char* value) {
    for (const Form& each : forms()) {
      if (std::string_view(each.name) == form) {
        EXPECT_EQ(refused(each, field, Json::parse(value)), "") << form << " " << field << " " << value;
      }
    }
  };
  taken("chat", "think", "false");
  taken("chat", "cache_prompt", "false");
  taken("chat", "mirostat", "null");
  taken("chat", "mirostat", "0");
  taken("chat", "tool_choice", R"("none")");
  taken("chat", "reasoning_effort", R"("none")");
  taken("chat", "modalities", R"(["text"])");
  taken("native", "tool_choice", R"("none")");
  taken("native", "images", "[]");
  taken("native", "keep_alive", "null");
  taken("native", "options", "{}");
  taken("native", "raw", "false");
  taken("native", "template", R"("")");
  taken("native", "n", "1");
  taken("native", "verbosity", R"("medium")");
  taken("ollama chat", "tool_choice", "null");
  taken("ollama chat", "suffix", R"("")");
  taken("ollama chat", "context", "null");
  taken("ollama chat", "num_gpu", "99");
  taken("ollama chat", "response_format", R"({"type":"text"})");
  taken("ollama embed", "encoding_format", R"("float")");
  taken("completion", "logprobs", "false");
  taken("completion", "top_logprobs", "0");
  taken("completion", "logit_bias", "[]");
  taken("completion", "stop", R"("")");
  taken("completion", "stop", "[]");
  taken("native", "stop", R"("")");
}

TEST(KnownFields, AreSuggestedForNamesNearby) {
  for (const Form& form : forms()) {
    Json body = Json::parse(form.question);
    body["metdata"] = 1;
    try {
      form.read(body);
      ADD_FAILURE() << form.name;
    } catch (const ApiError& error) {
      EXPECT_NE(std::string(error.what()).find("'metadata'"), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace quarrel
