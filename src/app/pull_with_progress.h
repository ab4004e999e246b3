// Fetches a model with a progress bar and Ctrl-C. Used by `pull` and by the first `run`; main thread.
#pragma once

#include <filesystem>
#include <string>

namespace quarrel {

// Gives the model's path. Throws what pull() throws; Error(cancelled) when Ctrl-C was pressed, with nothing left
// behind.
std::filesystem::path pull_with_progress(const std::string& name, const std::filesystem::path& store);

}  // namespace quarrel
