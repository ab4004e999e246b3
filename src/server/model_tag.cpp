#include "server/model_tag.h"

#include "store/pull.h"

namespace quarrel {

std::string_view other_name(std::string_view name) noexcept {
  constexpr std::string_view kExtension = ".gguf";
  for (const Pullable& row : pullables()) {
    std::string_view file = row.file;
    if (file.ends_with(kExtension)) file.remove_suffix(kExtension.size());
    if (name == row.name) return file;
    if (name == file) return row.name;
  }
  return {};
}

}  // namespace quarrel
