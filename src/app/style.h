// Colours, and the one place that decides whether there are any. Used by the commands. Stateless once made: any thread.
#pragma once

#include <string>
#include <string_view>

#include "app/terminal.h"

namespace quarrel {

enum class Style { prompt, notice, error };

// The colours of one stream: none when it is no terminal, when TERM is dumb, or when the user has set NO_COLOR.
class Palette {
 public:
  explicit Palette(Stream stream) : Palette(wants_colour(stream)) {}
  explicit Palette(bool colours) : colours_(colours) {}

  std::string paint(Style style, std::string_view text) const;

 private:
  bool colours_;
};

}  // namespace quarrel
