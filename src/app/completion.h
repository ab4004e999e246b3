// Scripts that make a shell complete the program's commands, options, models and files. Pure functions.
#pragma once

#include <string>
#include <string_view>

#include "app/command_reference.h"

namespace quarrel {

// A word in single quotes, as bash and zsh read it.
std::string shell_quoted(std::string_view text);

std::string bash_completion(const ProgramReference& program);
std::string zsh_completion(const ProgramReference& program);
std::string fish_completion(const ProgramReference& program);

}  // namespace quarrel
