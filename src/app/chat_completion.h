// What Tab offers in the chat: commands, parameters, subjects of /show, models, files. Reads folders and the list it is
// given, writes nothing. Used by the chat. One thread.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "app/line_editor.h"

namespace quarrel {

struct ChatWords {
  std::vector<std::string> commands = {};  // without their slash
  std::vector<std::string> parameters = {};
  std::vector<std::string> subjects = {};                                           // of /show
  std::function<std::vector<std::string>(std::string_view parameter)> values = {};  // of /set; none: any
  std::function<std::vector<std::string>()> models = {};  // of /model; asked when they are needed
};

// Messages are not completed.
Completion complete_chat(const ChatWords& words, std::string_view text, std::size_t cursor);

// "~" and "~/…" are in the user's home.
std::string expand_home(std::string_view path);

}  // namespace quarrel
