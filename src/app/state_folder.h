// Where the program keeps what it remembers from run to run, beside its models: the chat's history, the journals of
// datasets. Any thread.
#pragma once

#include <filesystem>

namespace quarrel {

// quarrel below XDG_STATE_HOME or ~/.local/state; empty where there is no home.
std::filesystem::path state_folder();

}  // namespace quarrel
