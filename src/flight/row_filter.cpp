#include <array>

#include "base/printable.h"
#include "flight/longbow.h"

namespace quarrel {
namespace {

struct Sign {
  std::string_view text;
  Comparison comparison;
};

// The longer ones first: `<` also begins `<=`.
constexpr std::array<Sign, 6> kSigns{{
    {"!=", Comparison::not_equal},
    {"<=", Comparison::less_or_equal},
    {">=", Comparison::greater_or_equal},
    {"=", Comparison::equal},
    {"<", Comparison::less},
    {">", Comparison::greater},
}};

}  // namespace

RowFilter read_row_filter(std::string_view text) {
  const std::size_t at = text.find_first_of("!<>=");
  for (const Sign& sign : kSigns) {
    if (at == std::string_view::npos || at == 0 || !text.substr(at).starts_with(sign.text)) continue;
    return {.field = std::string(text.substr(0, at)),
            .comparison = sign.comparison,
            .value = std::string(text.substr(at + sign.text.size()))};
  }
  fail(ErrorKind::usage, "a filter is FIELD=VALUE, or has !=, <, <=, > or >= in place of the sign: '{}' is none",
       printable(text));
}

}  // namespace quarrel
