// What a model can do, as its file says, for the dialects that tell it. Any thread.
#pragma once

#include <cstdint>
#include <filesystem>

#include "gguf/file.h"
#include "server/json_body.h"

namespace quarrel {

struct ModelAbilities {
  Json capabilities = Json::array();  // "completion", "embedding"; none of a file that we cannot run
  std::int32_t trained_context = 0;   // tokens; 0: not known
};
ModelAbilities read_abilities(const GgufFile& file);
ModelAbilities read_abilities(const std::filesystem::path& path);

}  // namespace quarrel
