// Four threads, one model: their answers are computed together, and each is the one that it would be alone.
//   threads MODEL
#include <array>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include "quarrel/quarrel.h"

namespace api = quarrel::api;

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "threads MODEL\n";
    return 2;
  }
  const std::array<std::string, 4> prompts{"The sea", "A machine", "Once upon a time", "What is"};
  try {
    const api::Model model = api::Model::load(argv[1], {.sequences = 4});
    const auto answer = [&](const std::string& prompt) -> std::string {
      try {
        return model.generate(prompt, {.max_tokens = 24}).text;
      } catch (const api::Error& error) {
        return std::string("error: ") + error.what();
      }
    };

    std::array<std::string, prompts.size()> together;
    std::vector<std::thread> threads;
    threads.reserve(prompts.size());
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      threads.emplace_back([&, i] { together[i] = answer(prompts[i]); });
    }
    for (std::thread& thread : threads) thread.join();

    bool same = true;
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      std::cout << prompts[i] << together[i] << "\n---\n";
      same = same && together[i] == answer(prompts[i]);
    }
    std::cout << (same ? "Each is the same alone.\n" : "They differ from what each gives alone.\n");
    return same ? 0 : 1;
  } catch (const api::Error& error) {
    std::cerr << "error: " << error.what() << '\n';
    return 1;
  }
}
