// TOML that somebody wrote: settings, suites of `regress`. Stateless.
#pragma once

#include <toml++/toml.h>

#include <string_view>

namespace quarrel {

// Throws Error(bad_input) that names the file, the line and what is wrong there.
toml::table parse_toml(std::string_view text, std::string_view name);

}  // namespace quarrel
