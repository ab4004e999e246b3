// The manual page of the program, in roff. Pure function.
#pragma once

#include <string>

#include "app/command_reference.h"

namespace quarrel {

std::string man_page(const ProgramReference& program);

}  // namespace quarrel
