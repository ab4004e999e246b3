#include "app/style.h"

#include <fmt/format.h>

namespace quarrel {
namespace {

std::string_view sequence(Style style) {
  switch (style) {
    case Style::prompt: return "\x1b[1;36m";
    case Style::notice: return "\x1b[2m";
    case Style::error: return "\x1b[31m";
  }
  return "";
}

}  // namespace

std::string Palette::paint(Style style, std::string_view text) const {
  if (!colours_ || text.empty()) return std::string(text);
  return fmt::format("{}{}\x1b[0m", sequence(style), text);
}

}  // namespace quarrel
