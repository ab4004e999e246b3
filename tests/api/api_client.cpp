// A program that embeds Quarrel, for the test that compares it with the program itself. What it prints is JSON.
//   api_client generate MODEL TOKENS COUNT ANSWERS SEED TEMPERATURE     tokens of answers that end with their length
//   api_client chat MODEL TEXT COUNT SEED TEMPERATURE                   the text of an answer
//   api_client embed MODEL TEXT                                         a vector
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "quarrel/quarrel.h"

namespace api = quarrel::api;

namespace {

std::vector<api::Token> list_of(const std::string& text) {
  std::vector<api::Token> tokens;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    tokens.push_back(std::atoi(text.substr(begin, end - begin).c_str()));
    begin = end + 1;
  }
  return tokens;
}

int run(const std::vector<std::string>& words) {
  const api::Model model = api::Model::load(words.at(1), {.threads = 2});
  if (words.at(0) == "generate") {
    const api::GenerateOptions options{.max_tokens = std::atoi(words.at(3).c_str()),
                                       .temperature = std::strtof(words.at(6).c_str(), nullptr),
                                       .seed = std::strtoull(words.at(5).c_str(), nullptr, 10),
                                       .stop_tokens = std::vector<api::Token>{},
                                       .answers = std::atoi(words.at(4).c_str())};
    std::vector<std::string> lists;
    for (const api::GenerateResult& answer : model.generate_many(list_of(words.at(2)), options)) {
      lists.push_back(fmt::format("{}", answer.tokens));
    }
    fmt::print("[{}]\n", fmt::join(lists, ","));
  } else if (words.at(0) == "chat") {
    const std::vector<api::Message> messages{{.role = "user", .content = words.at(2)}};
    const api::GenerateOptions options{.max_tokens = std::atoi(words.at(3).c_str()),
                                       .temperature = std::strtof(words.at(5).c_str(), nullptr),
                                       .top_k = 30,
                                       .top_p = 0.9f,
                                       .min_p = 0.02f,
                                       .repeat_penalty = 1.2f,
                                       .penalty_window = 32,
                                       .seed = std::strtoull(words.at(4).c_str(), nullptr, 10)};
    std::fputs(model.chat(messages, options).text.c_str(), stdout);
  } else if (words.at(0) == "embed") {
    fmt::print("{}\n", model.embed(std::vector<std::string>{words.at(2)}).front().values);
  } else {
    return 2;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return 1;
  }
}
