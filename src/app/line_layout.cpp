#include "app/line_layout.h"

#include <algorithm>

#include "text/graphemes.h"
#include "text/unicode.h"

namespace quarrel {
namespace {

constexpr int kTabStop = 8;
constexpr int kFewestColumns = 4;

class Builder {
 public:
  Builder(LineLayout& layout, int columns) : layout_(layout), columns_(columns) {}

  void begin_row(const Prompt& prompt) {
    layout_.rows.emplace_back();
    // A prompt that leaves no room is left out.
    indent_ = 0;
    const int width = text_width(prompt.plain);
    if (width + 2 > columns_) return;
    row().text = prompt.shown;
    row().columns = row().prompt_columns = indent_ = width;
    row().prompt_bytes = prompt.shown.size();
  }

  void put(std::string_view cluster) {
    if (cluster == "\t") return put_tab();
    GraphemeWidth width = grapheme_width(cluster);
    const char32_t code = decode_utf8(cluster, 0).code;
    const bool hidden = code < 0x20 || code == 0x7F || (code >= 0x80 && code < 0xA0);
    // A mark without a letter would join whatever is left of it, the prompt perhaps.
    const std::string base = hidden ? std::string(kReplacementText) : width.columns == 0 ? " " : "";
    if (!base.empty()) width = {.columns = 1, .most = 1, .certain = true};
    make_room(width);
    row().text += base;
    if (!hidden) row().text += cluster;
    row().columns += width.most;
    row().certain = row().certain && width.certain;
  }

  // The cursor stands before whatever is put next.
  void mark_cursor() {
    // A row that is full has no place for it.
    if (row().columns >= limit(row().certain)) wrap(row().certain);
    layout_.cursor_row = layout_.rows.size() - 1;
    layout_.cursor_column = row().columns;
    layout_.cursor_certain = row().certain;
    layout_.before_cursor = row().text;
  }

  // The last row keeps room, so that the screen below can be cleared from its end.
  void finish() {
    if (row().columns >= limit(row().certain)) wrap(row().certain);
  }

 private:
  LayoutRow& row() { return layout_.rows.back(); }

  // A row whose width is not known keeps its last column free: nobody knows what a terminal does there.
  int limit(bool certain) const { return certain ? columns_ : columns_ - 1; }

  void make_room(const GraphemeWidth& width) {
    const bool certain = row().certain && width.certain;
    if (row().columns + width.most <= limit(certain) || row().columns == 0) return;
    // By itself the terminal only goes on when the character does not fit for its own reckoning too.
    wrap(certain && row().columns + width.columns > columns_);
  }

  void wrap(bool by_itself) {
    row().wraps = by_itself;
    layout_.rows.emplace_back();
  }

  void put_tab() {
    make_room({.columns = 1, .most = 1, .certain = true});
    const int inner = std::max(row().columns - indent_, 0);
    const int wanted = kTabStop - inner % kTabStop;
    const int blanks = std::max(1, std::min(wanted, limit(row().certain) - row().columns));
    row().text.append(static_cast<std::size_t>(blanks), ' ');
    row().columns += blanks;
  }

  LineLayout& layout_;
  int columns_;
  int indent_ = 0;
};

}  // namespace

LineLayout lay_out(const Prompt& prompt, const Prompt& continuation, std::string_view text, std::size_t cursor,
                   int columns) {
  LineLayout layout;
  Builder builder(layout, std::max(columns, kFewestColumns));
  builder.begin_row(prompt);
  for (std::size_t at = 0; at < text.size();) {
    if (at == cursor) builder.mark_cursor();
    const std::size_t next = next_grapheme(text, at);
    const std::string_view cluster = text.substr(at, next - at);
    if (cluster == "\n") {
      builder.begin_row(continuation);
    } else {
      builder.put(cluster);
    }
    at = next;
  }
  if (cursor >= text.size()) builder.mark_cursor();
  builder.finish();
  return layout;
}

}  // namespace quarrel
