// Lets a model answer five times at once and shows the two answers that it finds likeliest: best_of MODEL [PROMPT]
#include <iostream>
#include <numeric>
#include <string>
#include <vector>

#include "quarrel/quarrel.h"

int main(int argc, char** argv) {
  namespace api = quarrel::api;
  if (argc < 2) {
    std::cerr << "best_of MODEL [PROMPT]\n";
    return 2;
  }
  try {
    const api::Model model = api::Model::load(argv[1], {.sequences = 5});
    const std::string prompt = argc > 2 ? argv[2] : "Once upon a time";
    const api::GenerateOptions options{.max_tokens = 24, .temperature = 0.9f, .seed = 1, .answers = 2, .best_of = 5};
    for (const api::GenerateResult& answer : model.generate_many(prompt, options)) {
      const float sum = std::accumulate(answer.logprobs.begin(), answer.logprobs.end(), 0.0f);
      std::cout << prompt << answer.text << '\n';
      std::cerr << sum / static_cast<float>(answer.logprobs.size()) << " a token, seed " << answer.seed << '\n';
    }
    return 0;
  } catch (const api::Error& error) {
    std::cerr << "error: " << error.what() << '\n';
    return 1;
  }
}
