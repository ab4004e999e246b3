#include "app/toml_text.h"

#include "base/error.h"
#include "base/printable.h"

namespace quarrel {

toml::table parse_toml(std::string_view text, std::string_view name) {
  try {
    return toml::parse(text, name);
  } catch (const toml::parse_error& error) {
    fail(ErrorKind::bad_input, "{}, line {}: {}", printable(name, 256), error.source().begin.line,
         printable(error.description(), 256));
  }
}

}  // namespace quarrel
