// Bodies of the endpoints about models, texts and rankings.
#include <gtest/gtest.h>

#include "server/model_api.h"
#include "server/ollama_store_api.h"
#include "server/rerank_api.h"
#include "server/text_api.h"

namespace quarrel {
namespace {

// The field that a body is refused for.
template <typename Read>
std::string refused(const Read& read, const char* body) {
  try {
    read(parse_body(body));
  } catch (const ApiError& error) {
    EXPECT_EQ(error.status, 400u) << body;
    return error.param;
  }
  return "nothing";
}

TEST(ModelRequests, CreateTakesFieldsAndModelfiles) {
  const OllamaCreateRequest plain = read_ollama_create(
      parse_body(R"({"model":"a","from":"b","system":"s","parameters":{"temperature":0.5,"stop":["x"]},
                     "template":"{{ messages }}","license":["one","two"],"stream":false})"));
  EXPECT_EQ(plain.from, "b");
  EXPECT_EQ(plain.system, "s");
  EXPECT_EQ(plain.template_text, "{{ messages }}");
  EXPECT_EQ(plain.license, "one\ntwo");
  EXPECT_EQ(plain.parameters.dump(), R"({"temperature":0.5,"stop":["x"]})");
  EXPECT_FALSE(plain.stream);

  const OllamaCreateRequest older = read_ollama_create(parse_body(
      R"({"name":"a","system":"mine","modelfile":"FROM b\nSYSTEM theirs\nPARAMETER top_k 7\nPARAMETER stop a\nPARAMETER stop b"})"));
  EXPECT_EQ(older.model, "a");
  EXPECT_EQ(older.from, "b");
  EXPECT_EQ(older.system, "mine") << "the body's own fields come first";
  EXPECT_EQ(older.parameters.dump(), R"({"top_k":7,"stop":["a","b"]})");
  EXPECT_TRUE(older.stream);
}

TEST(ModelRequests, CreateRefusesByName) {
  for (const auto& [body, field] : std::vector<std::pair<const char*, const char*>>{
           {R"({"from":"b"})", "model"},
           {R"({"model":"a"})", "from"},
           {R"({"model":"a","from":"b","template":"{{ .Prompt }}"})", "template"},
           {R"({"model":"a","from":"b","template":"{% if %}"})", "template"},
           {R"({"model":"a","from":"b","parameters":{"temprature":1}})", "temprature"},
           {R"({"model":"a","from":"b","parameters":{"top_k":"x"}})", "top_k"},
           {R"({"model":"a","from":"b","parameters":[1]})", "parameters"},
           {R"({"model":"a","from":"b","files":{"x":"sha256:1"}})", "files"},
           {R"({"model":"a","from":"b","quantize":"q4_K_M"})", "quantize"},
           {R"({"model":"a","from":"b","messages":[{"role":"user"}]})", "messages"},
           {R"({"model":"a","modelfile":"FRM b"})", "modelfile"},
           {R"({"model":"a","modelfile":"FROM b\nADAPTER c"})", "modelfile"},
           {R"({"model":"a","modelfile":"FROM b\nTEMPLATE {{ .Prompt }}"})", "template"},
           {R"({"model":"a","from":"b","license":[1]})", "license"},
           {R"({"model":"a","from":"b","renderer":"qwen3"})", "renderer"},
           {R"({"model":"a","from":"b","remote_host":"https://there"})", "remote_host"},
           {R"({"model":"a","from":"b","renderer":"","parser":"","requires":"","remote_host":""})", "nothing"}}) {
    EXPECT_EQ(refused(read_ollama_create, body), field) << body;
  }
  const Json body = parse_body(R"({"model":"a","from":"b","parameters":{"top_k":null,"top_p":1}})");
  EXPECT_EQ(read_ollama_create(body).parameters.dump(), R"({"top_p":1})") << "null is as good as absent";
}

TEST(ModelRequests, PullNamesAModel) {
  EXPECT_EQ(read_ollama_pull(parse_body(R"({"name":"a:b"})")).model, "a:b");
  for (const auto& [body, field] :
       std::vector<std::pair<const char*, const char*>>{{R"({})", "model"},
                                                        {R"({"model":"../a"})", "model"},
                                                        {R"({"model":"a/b/c/d"})", "model"},
                                                        {R"({"model":"http://h/../a"})", "model"},
                                                        {R"({"model":"a","insecure":true})", "insecure"},
                                                        {R"({"model":"a","stream":1})", "stream"}}) {
    EXPECT_EQ(refused(read_ollama_pull, body), field) << body;
  }
}

TEST(ModelRequests, LoadAndUnload) {
  EXPECT_FALSE(read_load(Json::object()).stream);
  const ModelControlRequest load = read_load(parse_body(R"({"stream":true,"reload":true,"keep_alive":"5m"})"));
  EXPECT_TRUE(load.stream);
  EXPECT_TRUE(load.reload);
  EXPECT_EQ(load.keep_alive, std::chrono::minutes(5));
  EXPECT_EQ(refused(read_unload, R"({"reload":true})"), "reload");
  EXPECT_EQ(refused(read_load, R"({"keep_alive":"soon"})"), "keep_alive");
}

TEST(ModelRequests, TextsAndTokens) {
  const TokenizeRequest tokenize = read_tokenize(parse_body(R"({"content":"","add_special":true,"with_pieces":true})"));
  EXPECT_TRUE(tokenize.add_special && tokenize.parse_special && tokenize.with_pieces);
  EXPECT_EQ(refused(read_tokenize, R"({"text":"a"})"), "text");
  EXPECT_EQ(refused(read_tokenize, R"({})"), "content");
  EXPECT_EQ(refused(read_tokenize, R"({"content":null})"), "content");
  EXPECT_EQ(refused(read_detokenize, R"({"tokens":null})"), "tokens");
  EXPECT_EQ(read_detokenize(parse_body(R"({"tokens":[1,2]})")).tokens.size(), 2u);
  EXPECT_EQ(refused(read_detokenize, R"({"tokens":"a"})"), "tokens");
  EXPECT_EQ(refused(read_detokenize, R"({"tokens":[-1]})"), "tokens");
  EXPECT_EQ(refused(read_apply_template, R"({"messages":[]})"), "messages");
  EXPECT_EQ(refused(read_apply_template, R"({"messages":[{"role":"user","content":"a"}],"tools":[1]})"), "tools");
  EXPECT_FALSE(
      read_apply_template(parse_body(R"({"messages":[{"role":"user","content":"a"}],"add_generation_prompt":false})"))
          .add_generation_prompt);
}

TEST(ModelRequests, RankingsHaveTwoForms) {
  const RerankRequest jina =
      read_rerank(parse_body(R"({"query":"q","documents":["a",{"text":"b"}],"top_n":1,"return_documents":true})"));
  EXPECT_EQ(jina.documents, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(jina.top_n, 1);
  EXPECT_TRUE(jina.return_documents);
  EXPECT_FALSE(jina.texts);
  EXPECT_TRUE(jina.truncate);
  const RerankRequest tei = read_rerank(parse_body(R"({"query":"q","texts":["a"],"raw_scores":true})"));
  EXPECT_TRUE(tei.texts && tei.raw_scores);
  for (const auto& [body, field] : std::vector<std::pair<const char*, const char*>>{
           {R"({"documents":["a"]})", "query"},
           {R"({"query":"q"})", "documents"},
           {R"({"query":"q","documents":[]})", "documents"},
           {R"({"query":"q","documents":[1]})", "documents"},
           {R"({"query":"q","documents":["a"],"texts":["b"]})", "texts"},
           {R"({"query":"q","documents":[{"text":null}]})", "documents"},
           {R"({"query":"q","documents":[{"text":1}]})", "text"},
           {R"({"query":"q","documents":[{"text":"a","title":"b"}]})", "title"},
           {R"({"query":"q","texts":["a"],"return_documents":true,"return_text":false})", "return_text"},
           {R"({"query":"q","documents":["a"],"top_n":0})", "top_n"}}) {
    EXPECT_EQ(refused(read_rerank, body), field) << body;
  }
}

// A vector's product with itself comes out a rounding beyond 1, which nothing can be alike.
TEST(Rankings, NothingIsMoreAlikeThanTheSame) {
  const std::vector<float> one(3, 0.57735030f), opposite(3, -0.57735030f), half = {1.0f, 0.0f, 0.0f};
  EXPECT_GT(3 * static_cast<double>(one[0]) * static_cast<double>(one[0]), 1.0);
  EXPECT_EQ(cosine(one, one), 1.0);
  EXPECT_EQ(cosine(one, opposite), -1.0);
  EXPECT_NEAR(cosine(one, half), 0.577, 1e-3);
}

}  // namespace
}  // namespace quarrel
