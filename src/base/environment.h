// The process's environment variables: the one place that reads them, so that what the program depends on is found by
// looking for this header. Nothing here writes the environment; reading is safe from any thread while nobody else does.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace quarrel {

// Empty when the variable is not set; an empty text when it is set to nothing.
std::optional<std::string> environment(std::string_view name);

// All variables as NAME=value, with `overrides` replacing or joining them: the environment for a child process.
std::vector<std::string> environment_with(const std::vector<std::pair<std::string, std::string>>& overrides);

}  // namespace quarrel
