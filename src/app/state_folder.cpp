#include "app/state_folder.h"

#include "base/environment.h"

namespace quarrel {

std::filesystem::path state_folder() {
  const std::filesystem::path state = environment("XDG_STATE_HOME").value_or("");
  if (state.is_absolute()) return state / "quarrel";
  const std::filesystem::path home = environment("HOME").value_or("");
  return home.is_absolute() ? home / ".local" / "state" / "quarrel" : std::filesystem::path();
}

}  // namespace quarrel
