// Texts on the command line, taken as the user wrote them.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace quarrel {

// Any number of positional texts.
void add_texts(CLI::App& command, const char* name, std::vector<std::string>& texts, const char* help);

}  // namespace quarrel
