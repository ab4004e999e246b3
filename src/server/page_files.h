// The files of web/dist as they were when the program was built.
#pragma once

#include <span>
#include <string_view>

namespace quarrel::files {

struct EmbeddedFile {
  std::string_view name;  // below web/dist, with its .gz
  std::string_view bytes;
};

std::span<const EmbeddedFile> page_files() noexcept;

}  // namespace quarrel::files
