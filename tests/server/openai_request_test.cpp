// OpenAI's bodies: every field with both its bounds, and what a request becomes.
#include "server/openai_request.h"

#include <gtest/gtest.h>

#include "server/question.h"

namespace quarrel {
namespace {

Json chat() { return Json::parse(R"({"messages":[{"role":"user","content":"hi"}]})"); }
Json completion() { return Json::parse(R"({"prompt":"hi"})"); }
Json embedding() { return Json::parse(R"({"input":"hi"})"); }

// The field that is refused; empty: the body is taken.
template <typename Read>
std::string refused(Read read, const Json& body) {
  try {
    read(body);
  } catch (const ApiError& error) {
    EXPECT_EQ(error.status, 400u);
    return error.param;
  }
  return {};
}
Json with(Json body, const std::string& name, const Json& value) {
  body[name] = value;
  return body;
}

struct Bounds {
  const char* name;
  double least, most;
  bool whole;
};

template <typename Read>
void check_bounds(Read read, const Json& body, const Bounds& row) {
  const auto taken = [&](const Json& value) { return refused(read, with(body, row.name, value)); };
  const double step = row.whole ? 1.0 : 1e-3;
  EXPECT_EQ(taken(row.least), "") << row.name;
  EXPECT_EQ(taken(row.most), "") << row.name;
  EXPECT_EQ(taken(nullptr), "") << row.name;
  EXPECT_EQ(taken(row.least - std::max(step, std::abs(row.least) * 1e-12)), row.name);
  EXPECT_EQ(taken(row.most + std::max(step, std::abs(row.most) * 1e-12)), row.name);
  for (const Json& value : {Json("1"), Json(true), Json::array(), Json::object(), Json(1e308), Json(-1e308)}) {
    EXPECT_EQ(taken(value), row.name) << value.dump();
  }
  if (row.whole) {
    EXPECT_EQ(taken(std::max(row.least, 0.0) + 0.5), row.name);
  }
}

constexpr double kTokens = 1 << 30;
constexpr double kSeed = 9007199254740992.0;
constexpr Bounds kShared[] = {
    {"max_tokens", -1, kTokens, true},
    {"temperature", 0, 2, false},
    {"top_p", 0, 1, false},
    {"top_k", 0, kTokens, true},
    {"min_p", 0, 1, false},
    {"typical_p", 0, 1, false},
    {"presence_penalty", -2, 2, false},
    {"frequency_penalty", -2, 2, false},
    {"repeat_penalty", 0.01, 10, false},
    {"repetition_penalty", 0.01, 10, false},
    {"repeat_last_n", -1, kTokens, true},
    {"seed", -kSeed, kSeed, true},
    {"n", 1, 16, true},
};

TEST(OpenAiBounds, OfBothGeneratingForms) {
  for (const Bounds& row : kShared) {
    check_bounds(read_chat_request, chat(), row);
    Json body = completion();
    body["best_of"] = 16;
    check_bounds(read_completion_request, body, row);
  }
}

TEST(OpenAiBounds, OfEachForm) {
  check_bounds(read_chat_request, chat(), {"max_completion_tokens", -1, kTokens, true});
  check_bounds(read_chat_request, with(chat(), "logprobs", true), {"top_logprobs", 0, 20, true});
  check_bounds(read_completion_request, completion(), {"logprobs", 0, 20, true});
  check_bounds(read_completion_request, completion(), {"best_of", 1, 16, true});
  check_bounds(read_embedding_request, embedding(), {"dimensions", 1, 1 << 20, true});
}

// Each answer searches for each byte of them.
TEST(OpenAiStop, HasABoundForAllOfThemTogether) {
  const auto stops = [](std::size_t count, std::size_t bytes) {
    return with(chat(), "stop", Json(std::vector<std::string>(count, std::string(bytes, 'x'))));
  };
  EXPECT_EQ(refused(read_chat_request, stops(16, 256)), "");
  EXPECT_EQ(refused(read_chat_request, stops(16, 257)), "stop");
  EXPECT_EQ(refused(read_chat_request, stops(1, 4096)), "");
  EXPECT_EQ(refused(read_chat_request, with(chat(), "stop", std::string(4097, 'x'))), "stop");
}

TEST(OpenAiStream, HasOptionsOnlyWhereThereIsOne) {
  const Json options{{"include_usage", true}};
  EXPECT_EQ(refused(read_chat_request, with(chat(), "stream_options", options)), "stream_options");
  EXPECT_EQ(refused(read_completion_request, with(completion(), "stream_options", options)), "stream_options");
  EXPECT_EQ(refused(read_chat_request, with(chat(), "stream_options", nullptr)), "");
  EXPECT_EQ(refused(read_chat_request, with(with(chat(), "stream_options", options), "stream", true)), "");
}

Json said(const char* message) {
  return with(chat(), "messages", Json::array({Json::parse(message), Json{{"role", "user"}, {"content", "hi"}}}));
}

// Clients send answers back as they came, with all that says nothing in them.
TEST(OpenAiMessages, TakeWhatClientsSendBack) {
  const OpenAiRequest request = read_chat_request(
      said(R"({"role":"assistant","content":"yes","refusal":null,"annotations":[],"audio":null,"function_call":null,
               "tool_calls":null,"name":"eve","reasoning_content":"hm"})"));
  EXPECT_EQ(request.messages[0]["name"], "eve");
  EXPECT_EQ(request.messages[0]["reasoning_content"], "hm");
  EXPECT_FALSE(request.messages[0].contains("tool_calls")) << "null is as good as absent";
  EXPECT_EQ(refused(read_chat_request, said(R"({"role":"tool","content":"1","tool_call_id":"a"})")), "");
  EXPECT_EQ(refused(read_chat_request, said(R"({"role":"assistant","content":null,"tool_calls":[{"id":"a"}]})")), "");
  EXPECT_EQ(refused(read_chat_request, said(R"({"role":"user","content":[{"type":"text","text":"a",
                                                "cache_control":{"type":"ephemeral"}}]})")),
            "");
}

TEST(OpenAiMessages, RefuseByNameWhatWouldGoUnnoticed) {
  EXPECT_EQ(refused(read_chat_request, said(R"({"role":"user","content":"a","contents":"b"})")), "contents");
  EXPECT_EQ(refused(read_chat_request, said(R"({"role":"user","content":"a","images":["x"]})")), "images");
  EXPECT_EQ(refused(read_chat_request, said(R"({"role":"assistant","content":"a","audio":{"id":"x"}})")), "audio");
  EXPECT_EQ(refused(read_chat_request, said(R"({"role":"user","content":"a","name":7})")), "name");
  EXPECT_EQ(refused(read_chat_request, said(R"({"role":"user","content":[{"type":"text","text":"a","image":1}]})")),
            "image");
}

TEST(OpenAiFields, AreReadWhereTheyBelong) {
  Json body = chat();
  body.update(Json::parse(R"({"model":"m","stream":true,"stream_options":{"include_usage":true},"max_tokens":5,
    "max_completion_tokens":6,"seed":-1,"n":2,"logprobs":true,"top_logprobs":3,"stop":"x","logit_bias":{"7":-100},
    "temperature":0.5,"user":"me","metadata":{},"store":true,"service_tier":"auto","tools":[],"response_format":
    {"type":"text"},"chat_template_kwargs":{"a":1}})"));
  const OpenAiRequest request = read_chat_request(body);
  EXPECT_EQ(request.model, "m");
  EXPECT_TRUE(request.stream && request.include_usage && request.logprobs);
  EXPECT_EQ(request.options.max_tokens, 5);
  EXPECT_EQ(request.max_completion_tokens, 6);
  EXPECT_EQ(request.options.seed, ~std::uint64_t{0});
  EXPECT_EQ(request.ask.answers, 2);
  EXPECT_EQ(request.ask.top, 3);
  EXPECT_EQ(request.options.stop, std::vector<std::string>{"x"});
  EXPECT_EQ(request.options.temperature, 0.5f);
  EXPECT_EQ(request.logit_bias, (std::vector<std::pair<TokenId, float>>{{7, -100.0f}}));
  EXPECT_EQ(request.template_arguments, Json({{"a", 1}}));
}

TEST(OpenAiFields, OfConversations) {
  const Json said = read_conversation(Json::parse(
      R"([{"role":"developer","content":"a"},{"role":"assistant","content":null},
          {"role":"user","content":[{"type":"text","text":"b"},{"type":"text","text":"c"}]}])"));
  EXPECT_EQ(said[0]["role"], "system");
  EXPECT_EQ(said[1]["content"], "");
  EXPECT_EQ(said[2]["content"], "bc");
  for (const char* messages :
       {"5", "\"x\"", "{}", "[]", "[1]", "[{}]", R"([{"role":1,"content":"a"}])", R"([{"role":"king","content":"a"}])",
        R"([{"role":"user"}])", R"([{"role":"user","content":null}])", R"([{"role":"user","content":5}])",
        R"([{"role":"user","content":[{"type":"image_url"}]}])", R"([{"role":"user","content":["a"]}])",
        R"([{"role":"user","content":[{"type":"text","text":5}]}])"}) {
    EXPECT_EQ(refused(read_chat_request, with(chat(), "messages", Json::parse(messages))), "messages") << messages;
  }
  EXPECT_EQ(refused(read_chat_request, Json::object()), "messages");
}

TEST(OpenAiFields, ThatAreListsAreBounded) {
  const auto stop = [](const Json& value) { return refused(read_chat_request, with(chat(), "stop", value)); };
  EXPECT_EQ(stop(Json(std::vector<std::string>(16, "x"))), "");
  EXPECT_EQ(stop(Json(std::vector<std::string>(17, "x"))), "stop");
  for (const Json& value : {Json(5), Json::array({""}), Json({"a", 5})}) EXPECT_EQ(stop(value), "stop");
  const auto bias = [](const char* text) {
    return refused(read_chat_request, with(chat(), "logit_bias", Json::parse(text)));
  };
  EXPECT_EQ(bias(R"({"0":100,"1":-100})"), "");
  for (const char* text : {"[1]", "5", R"({"a":1})", R"({"-1":1})", R"({"1":101})", R"({"1":"1"})", R"({"1x":1})",
                           R"({"99999999999":1})"}) {
    EXPECT_EQ(bias(text), "logit_bias") << text;
  }
  Json many = Json::object();
  for (int i = 0; i < 1025; ++i) many[std::to_string(i)] = 1;
  EXPECT_EQ(refused(read_chat_request, with(chat(), "logit_bias", many)), "logit_bias");
  EXPECT_EQ(refused(read_embedding_request, with(embedding(), "input", Json(std::vector<std::string>(2049, "x")))),
            "input");
}

TEST(OpenAiFields, OfPromptsAndInputs) {
  const std::pair<const char*, std::size_t> taken[] = {{"\"a\"", 1},   {"[\"a\"]", 1},       {"[1,2]", 1},
                                                       {"[[1,2]]", 1}, {"[\"a\",\"b\"]", 2}, {"[[1,2],\"a\",[3]]", 3}};
  for (const auto& [prompt, count] : taken) {
    EXPECT_EQ(read_completion_request(with(completion(), "prompt", Json::parse(prompt))).prompts.size(), count)
        << prompt;
  }
  for (const char* prompt : {"5", "[]", "[[]]", "{}", "[1,\"a\"]", "[\"a\",1]", "[\"a\",[]]", "[-1]", "[1.5]",
                             "[4294967296]", "[18446744073709551615]", "true"}) {
    EXPECT_EQ(refused(read_completion_request, with(completion(), "prompt", Json::parse(prompt))), "prompt") << prompt;
  }
  for (const char* input : {"5", "[]", "{}", "[true]", "[1,\"a\"]", "[{}]", "[[-1]]"}) {
    EXPECT_EQ(refused(read_embedding_request, with(embedding(), "input", Json::parse(input))), "input") << input;
  }
  EXPECT_EQ(read_embedding_request(with(embedding(), "input", Json::parse("[\"a\",[1,2]]"))).inputs.size(), 2u);
}

TEST(OpenAiFields, ThatAreNotOfferedTakeWhatIsSoAnyway) {
  const auto taken = [](const char* name, const char* value) {
    return refused(read_chat_request, with(chat(), name, Json::parse(value)));
  };
  EXPECT_EQ(taken("modalities", R"(["text"])"), "");
  EXPECT_EQ(taken("modalities", R"(["text","audio"])"), "modalities");
  EXPECT_EQ(taken("verbosity", R"("medium")"), "");
  EXPECT_EQ(taken("verbosity", R"("low")"), "verbosity");
  for (const char* name : {"tool_choice", "function_call"}) {
    EXPECT_EQ(taken(name, R"("none")"), "");
    EXPECT_EQ(taken(name, R"("auto")"), "");
    EXPECT_EQ(taken(name, R"("required")"), name);
    EXPECT_EQ(taken(name, R"({"name":"f"})"), name);
  }
  for (const char* name : {"keep_alive", "ttl", "reasoning", "enable_thinking", "grammar"}) {
    for (const char* nothing : {"null", "false", R"("")"}) EXPECT_EQ(taken(name, nothing), "") << name;
  }
  EXPECT_EQ(taken("keep_alive", R"("5m")"), "keep_alive");
  EXPECT_EQ(taken("ttl", "60"), "ttl");
  EXPECT_EQ(taken("reasoning", R"({"effort":"low"})"), "reasoning");
  EXPECT_EQ(taken("enable_thinking", "true"), "enable_thinking");
  EXPECT_EQ(taken("grammar", R"("root ::= \"a\"")"), "grammar");
  EXPECT_EQ(taken("response_format", R"({"type":"text"})"), "");
  EXPECT_EQ(taken("response_format", R"({"type":"text","schema":{}})"), "response_format");
  EXPECT_EQ(taken("response_format", R"({"type":"json_object"})"), "response_format");
}

TEST(OpenAiFields, OfTemplatesAreTheirOwn) {
  const auto taken = [](const char* value) {
    return refused(read_chat_request, with(chat(), "chat_template_kwargs", Json::parse(value)));
  };
  EXPECT_EQ(taken(R"({"enable_thinking":false})"), "");
  for (const char* value : {R"({"add_generation_prompt":false})", R"({"messages":[]})", R"({"bos_token":"x"})",
                            R"({"eos_token":"x"})", R"({"tools":[]})", "[]"}) {
    EXPECT_EQ(taken(value), "chat_template_kwargs") << value;
  }
}

TEST(OpenAiFields, ThatContradictEachOther) {
  EXPECT_EQ(refused(read_chat_request, with(with(chat(), "repeat_penalty", 1.1), "repetition_penalty", 1.2)),
            "repetition_penalty");
  EXPECT_EQ(refused(read_completion_request, with(with(completion(), "repeat_penalty", 1), "repetition_penalty", 2)),
            "repetition_penalty");
  EXPECT_EQ(refused(read_chat_request, with(with(chat(), "repeat_penalty", 1.1), "repetition_penalty", nullptr)), "");
  EXPECT_EQ(refused(read_chat_request, with(chat(), "top_logprobs", 2)), "top_logprobs");
  EXPECT_EQ(refused(read_completion_request, with(with(completion(), "n", 3), "best_of", 2)), "best_of");
  EXPECT_EQ(refused(read_completion_request, with(with(completion(), "stream", true), "best_of", 2)), "best_of");
  const Json echoed = with(with(completion(), "echo", true), "logprobs", 2);
  EXPECT_TRUE(read_completion_request(echoed).ask.prompt_scores);
  EXPECT_EQ(refused(read_completion_request, with(echoed, "stream", true)), "echo");
  const Json several = with(completion(), "prompt", Json(std::vector<std::string>(64, "x")));
  EXPECT_EQ(refused(read_completion_request, with(several, "n", 2)), "");
  EXPECT_EQ(refused(read_completion_request, with(several, "n", 3)), "prompt");
  EXPECT_EQ(refused(read_completion_request, with(completion(), "suffix", "x")), "suffix");
  EXPECT_EQ(refused(read_completion_request, with(completion(), "messages", Json::array())), "messages");
  EXPECT_EQ(refused(read_chat_request, with(chat(), "prompt", "x")), "prompt");
}

}  // namespace
}  // namespace quarrel
