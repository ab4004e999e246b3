// The built-in templates: each renders a conversation, and a vocabulary finds its own.
#include <set>

#include "text/default_templates.h"
#include "unit/chat_template_support.h"

namespace quarrel {
namespace {

Json conversation() {
  Json variables = golden_variables(Json::object());
  variables["messages"] = {{{"role", "system"}, {"content", "Be brief."}},
                           {{"role", "user"}, {"content", "Hi"}},
                           {{"role", "assistant"}, {"content", "Hello"}},
                           {{"role", "user"}, {"content", "Bye"}}};
  return variables;
}

TEST(DefaultTemplates, RenderAConversation) {
  const std::pair<const char*, const char*> expected[] = {
      {"chatml",
       "<|im_start|>system\nBe "
       "brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHello<|im_end|>\n"
       "<|im_start|>user\nBye<|im_end|>\n<|im_start|>assistant\n"},
      {"llama3",
       "<s><|start_header_id|>system<|end_header_id|>\n\nBe "
       "brief.<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
       "<|start_header_id|>assistant<|end_header_id|>\n\nHello<|eot_id|><|start_header_id|>user<|end_header_id|>"
       "\n\nBye<|eot_id|>"
       "<|start_header_id|>assistant<|end_header_id|>\n\n"},
      {"llama2", "<s>[INST] <<SYS>>\nBe brief.\n<</SYS>>\n\nHi [/INST] Hello </s><s>[INST] Bye [/INST]"},
      {"mistral", "<s>[INST] Be brief.\n\nHi [/INST] Hello</s>[INST] Bye [/INST]"},
      {"zephyr",
       "<|system|>\nBe brief.</s>\n<|user|>\nHi</s>\n<|assistant|>\nHello</s>\n<|user|>\nBye</s>\n<|assistant|>\n"},
      {"gemma",
       "<s><start_of_turn>user\nBe brief.\n\nHi<end_of_turn>\n<start_of_turn>model\nHello<end_of_turn>\n"
       "<start_of_turn>user\nBye<end_of_turn>\n<start_of_turn>model\n"},
      {"phi3",
       "<|system|>\nBe "
       "brief.<|end|>\n<|user|>\nHi<|end|>\n<|assistant|>\nHello<|end|>\n<|user|>\nBye<|end|>\n<|assistant|>\n"},
      {"granite",
       "<|start_of_role|>system<|end_of_role|>Be "
       "brief.<|end_of_text|>\n<|start_of_role|>user<|end_of_role|>Hi<|end_of_text|>\n"
       "<|start_of_role|>assistant<|end_of_role|>Hello<|end_of_text|>\n<|start_of_role|>user<|end_of_role|>Bye<|end_of_"
       "text|>\n"
       "<|start_of_role|>assistant<|end_of_role|>"},
      {"deepseek", "<s>Be brief.<｜User｜>Hi<｜Assistant｜>Hello<｜end▁of▁sentence｜><｜User｜>Bye<｜Assistant｜>"},
      {"vicuna", "<s>Be brief.\n\nUSER: Hi\nASSISTANT: Hello</s>\nUSER: Bye\nASSISTANT:"},
      {"alpaca",
       "Be brief.\n\n### Instruction:\nHi\n\n### Response:\nHello</s>\n\n### Instruction:\nBye\n\n### Response:\n"},
      {"plain", "System: Be brief.\n\nUser: Hi\n\nAssistant: Hello\n\nUser: Bye\n\nAssistant:"},
  };
  std::set<std::string_view> seen;
  for (const auto& [name, text] : expected) {
    EXPECT_EQ(render_or_error(std::string(find_default_template(name)), conversation()), text) << name;
    seen.insert(name);
  }
  for (const std::string_view name : default_template_names()) EXPECT_TRUE(seen.contains(name)) << name;
  EXPECT_EQ(seen.size(), default_template_names().size());
}

TEST(DefaultTemplates, HaveOtherNamesToo) {
  EXPECT_EQ(find_default_template("tinyllama"), find_default_template("zephyr"));
  EXPECT_TRUE(find_default_template("nosuch").empty());
  EXPECT_TRUE(find_default_template("").empty());
}

TEST(DefaultTemplates, AreChosenByTheVocabulary) {
  const auto choose = [](std::set<std::string_view> tokens) {
    return choose_default_template([&tokens](std::string_view spelling) { return tokens.contains(spelling); });
  };
  EXPECT_EQ(choose({"<|im_start|>", "<|im_end|>"}), "chatml");
  EXPECT_EQ(choose({"<|im_start|>"}), "plain");
  EXPECT_EQ(choose({"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"}), "llama3");
  EXPECT_EQ(choose({"<start_of_turn>", "<end_of_turn>"}), "gemma");
  EXPECT_EQ(choose({"<|start_of_role|>", "<|end_of_role|>"}), "granite");
  EXPECT_EQ(choose({"<|user|>", "<|assistant|>", "<|end|>"}), "phi3");
  EXPECT_EQ(choose({"<|user|>", "<|assistant|>"}), "zephyr");
  EXPECT_EQ(choose({"[INST]", "[/INST]"}), "mistral");
  EXPECT_EQ(choose({"▁[", "INST", "]"}), "llama2");
  EXPECT_EQ(choose({"<｜User｜>", "<｜Assistant｜>"}), "deepseek");
  EXPECT_EQ(choose({}), "plain");
}

}  // namespace
}  // namespace quarrel
