// Modelfiles, read: the text by which Ollama's users say what a model is made of. `FROM`, `PARAMETER`, `TEMPLATE`,
// `SYSTEM` and `LICENSE` are understood; what else the language has is refused by name. Pure function; any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace quarrel {

struct Modelfile {
  std::string from = {};
  std::optional<std::string> system = {};
  std::optional<std::string> template_text = {};
  std::string license = {};
  std::vector<std::pair<std::string, std::string>> parameters = {};  // in order; `stop` may come several times
};

// Throws Error(bad_input) with the line for what is no Modelfile, Error(unsupported) for instructions that we have not.
Modelfile read_modelfile(std::string_view text);

}  // namespace quarrel
