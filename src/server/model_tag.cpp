#include "server/model_tag.h"

#include "store/own_store.h"
#include "store/pull.h"

namespace quarrel {

std::string_view other_name(std::string_view name) noexcept {
  for (const Pullable& row : pullables()) {
    std::string_view file = row.file;
    if (file.ends_with(kModelExtension)) file.remove_suffix(kModelExtension.size());
    if (name == row.name) return file;
    if (name == file) return row.name;
  }
  return {};
}

}  // namespace quarrel
