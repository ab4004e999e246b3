// The table of architectures: a GGUF architecture's name to the function that reads its spec. The only place in the
// tree that names an architecture. To add one made of known sublayers: a function and a row in architectures.cpp.
#pragma once

#include <string_view>
#include <vector>

#include "gguf/file.h"
#include "model/spec.h"

namespace quarrel {

// Throws Error(unsupported) for an architecture that is not in the table, naming those that are, and Error(bad_file)
// for a key that is missing or out of range. `context` is how long sequences may get, which some models' rotary
// embedding depends on; 0: what the model was trained for.
ModelSpec read_spec(const GgufFile& file, std::int32_t context = 0);

std::vector<std::string_view> known_architectures();

}  // namespace quarrel
