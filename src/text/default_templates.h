// Chat templates for models whose file carries none: the well-known conversation formats, in our own words, and the
// choice of one by what a vocabulary contains. Pure data; any thread.
#pragma once

#include <functional>
#include <span>
#include <string_view>

namespace quarrel {

// The names `find_default_template` knows, in the order the choice goes through them.
std::span<const std::string_view> default_template_names() noexcept;

// A template's source, or empty when there is none of this name. Some formats have two names (tinyllama is zephyr).
std::string_view find_default_template(std::string_view name) noexcept;

// The name of the format a vocabulary was made for. `has_token` says whether it has a token of this spelling:
//   choose_default_template([&](std::string_view spelling) { return tokenizer.find(spelling).has_value(); })
// Without a sign of any format, "plain".
std::string_view choose_default_template(const std::function<bool(std::string_view)>& has_token);

}  // namespace quarrel
