#include "app/text_argument.h"

#include <CLI/CLI.hpp>

namespace quarrel {

// The parser takes the brackets off a text like "[a, b]" and cuts it at its commas when an option holds many values,
// unless extra values are forbidden; then it takes as many as it expects, which may be more than there are.
void add_texts(CLI::App& command, const char* name, std::vector<std::string>& texts, const char* help) {
  const auto take = [&texts](const CLI::results_t& results) {
    texts = results;
    return true;
  };
  constexpr int kMost = 1 << 22;
  command.add_option(name, take, help)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->expected(kMost, CLI::detail::expected_max_vector_size)
      ->allow_extra_args(false);
}

}  // namespace quarrel
