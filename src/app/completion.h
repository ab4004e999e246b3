// Scripts that make a shell complete the program's commands, options, models and files. Pure functions.
#pragma once

#include <string>

#include "app/command_reference.h"

namespace quarrel {

std::string bash_completion(const ProgramReference& program);
std::string zsh_completion(const ProgramReference& program);
std::string fish_completion(const ProgramReference& program);

}  // namespace quarrel
