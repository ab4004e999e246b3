// Loads a model and lets it answer: hello MODEL [PROMPT]
#include <iostream>
#include <string>
#include <vector>

#include "quarrel/quarrel.h"

int main(int argc, char** argv) {
  namespace api = quarrel::api;
  if (argc < 2) {
    std::cerr << "hello MODEL [PROMPT]\n";
    return 2;
  }
  try {
    const api::Model model = api::Model::load(argv[1]);
    const std::vector<api::Message> messages{
        {.role = "user", .content = argc > 2 ? argv[2] : "What is a quarrel?"},
    };
    const api::GenerateOptions options{.max_tokens = 64, .temperature = 0.7f, .top_p = 0.9f, .seed = 1};
    const api::GenerateResult result = model.chat(messages, options, [](const api::Piece& piece) {
      std::cout << piece.text << std::flush;
      return true;  // false would end the answer
    });
    std::cout << '\n';
    std::cerr << result.prompt_tokens << " tokens in, " << result.tokens.size() << " out\n";
    return 0;
  } catch (const api::Error& error) {
    std::cerr << "error: " << error.what() << '\n';
    return 1;
  }
}
