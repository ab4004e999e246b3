#include "text/jinja/text_functions.h"

#include <algorithm>

#include "text/jinja/characters.h"
#include "text/jinja/operations.h"

namespace quarrel::jinja {
namespace {

// Rewrites a text character by character; `rewrite(out, code)` keeps what state it needs from one to the next.
template <typename Rewrite>
Text rewrite_characters(Runtime& runtime, Text text, Rewrite rewrite) {
  TextBuilder out(runtime);
  runtime.spend_bytes(4 * text.size);
  for (const auto& [piece, origin] : runs_of(text)) {
    const std::string_view view = piece.view();
    std::string rewritten;
    rewritten.reserve(view.size());
    for (std::size_t at = 0; at < view.size();) {
      const Character c = character_at(view, at);
      if (c.code > 0x10FFFF) {
        rewritten += view[at];
      } else {
        rewrite(rewritten, c.code);
      }
      at += c.size;
    }
    out.append(rewritten, origin);
  }
  return out.finish();
}

bool is_cased(char32_t code) { return is_upper(code) || is_lower(code); }

bool begins_word_in_title(char32_t code) {
  return is_space(code) || code == '-' || code == '(' || code == '{' || code == '[' || code == '<';
}

bool strippable(Runtime& runtime, std::string_view text, std::size_t at, std::size_t size,
                const std::optional<std::string_view>& set) {
  runtime.spend_bytes(set ? set->size() : 1);
  if (!set) return is_space(character_at(text, at).code);
  const std::string_view character = text.substr(at, size);
  for (std::size_t i = 0; i < set->size();) {
    const std::size_t width = character_at(*set, i).size;
    if (set->substr(i, width) == character) return true;
    i += width;
  }
  return false;
}

void require_separator(Text separator) {
  if (separator.size == 0) fault("the separator is empty");
}

// Cuts at runs of white space, from the left.
void split_blanks(Runtime& runtime, Text text, std::int64_t limit, ListObject& result) {
  const std::string_view view = text.view();
  std::size_t at = 0;
  const auto skip = [&](bool blanks) {
    while (at < view.size()) {
      const Character c = character_at(view, at);
      if (is_space(c.code) != blanks) break;
      at += c.size;
    }
  };
  for (skip(true); at < view.size(); skip(true)) {
    const std::size_t begin = at;
    if (limit >= 0 && static_cast<std::int64_t>(result.items.size()) >= limit) {
      result.push(runtime.heap(), Value::text(text.slice(begin, view.size() - begin)));
      return;
    }
    skip(false);
    result.push(runtime.heap(), Value::text(text.slice(begin, at - begin)));
  }
}

}  // namespace

std::vector<std::pair<Text, Origin>> runs_of(Text text) {
  std::vector<std::pair<Text, Origin>> runs;
  if (text.size == 0) return runs;
  const std::size_t end = text.begin + text.size;
  std::size_t at = text.begin;
  const auto add = [&](std::size_t to, Origin origin) {
    if (to > at) runs.emplace_back(Text{text.buffer, at, to - at}, origin);
    at = std::max(at, to);
  };
  const auto& ranges = text.buffer->from_variables;
  auto range = std::upper_bound(ranges.begin(), ranges.end(), text.begin,
                                [](std::size_t begin, const TextRange& candidate) { return begin < candidate.end; });
  for (; range != ranges.end() && range->begin < end; ++range) {
    add(std::max(range->begin, text.begin), Origin::of_template);
    add(std::min(range->end, end), Origin::of_variables);
  }
  add(end, Origin::of_template);
  return runs;
}

Text upper(Runtime& runtime, Text text) { return rewrite_characters(runtime, text, append_upper); }

Text lower(Runtime& runtime, Text text) { return rewrite_characters(runtime, text, append_lower); }

Text capitalize(Runtime& runtime, Text text) {
  bool first = true;
  return rewrite_characters(runtime, text, [&first](std::string& out, char32_t code) {
    first ? append_upper(out, code) : append_lower(out, code);
    first = false;
  });
}

Text title(Runtime& runtime, Text text) {
  bool inside = false;
  return rewrite_characters(runtime, text, [&inside](std::string& out, char32_t code) {
    inside ? append_lower(out, code) : append_upper(out, code);
    inside = is_cased(code);
  });
}

Text title_filter(Runtime& runtime, Text text) {
  bool begins = true;
  return rewrite_characters(runtime, text, [&begins](std::string& out, char32_t code) {
    const bool boundary = begins_word_in_title(code);
    begins ? append_upper(out, code) : append_lower(out, code);
    begins = boundary;
  });
}

Text strip(Runtime& runtime, Text text, Side side, std::optional<Text> characters) {
  const std::string_view view = text.view();
  std::optional<std::string_view> set;
  if (characters) set = characters->view();
  std::size_t begin = 0;
  std::size_t end = view.size();
  while (side != Side::right && begin < end) {
    const std::size_t size = character_at(view, begin).size;
    if (!strippable(runtime, view, begin, size, set)) break;
    begin += size;
  }
  while (side != Side::left && end > begin) {
    const std::size_t previous = previous_character(view.substr(0, end), end);
    if (!strippable(runtime, view, previous, end - previous, set)) break;
    end = previous;
  }
  return text.slice(begin, end - begin);
}

ListObject* split(Runtime& runtime, Text text, std::optional<Text> separator, std::int64_t limit) {
  ListObject* result = runtime.list();
  if (!separator) {
    runtime.spend_bytes(text.size);
    split_blanks(runtime, text, limit, *result);
    return result;
  }
  require_separator(*separator);
  const std::string_view view = text.view();
  std::size_t begin = 0;
  for (; limit != 0; --limit) {
    const std::size_t at = find_text(runtime, view, separator->view(), begin);
    if (at == std::string_view::npos) break;
    result->push(runtime.heap(), Value::text(text.slice(begin, at - begin)));
    begin = at + separator->size;
  }
  result->push(runtime.heap(), Value::text(text.slice(begin, view.size() - begin)));
  return result;
}

ListObject* split_right(Runtime& runtime, Text text, std::optional<Text> separator, std::int64_t limit) {
  if (limit < 0) return split(runtime, text, separator, limit);
  ListObject* result = runtime.list();
  const std::string_view view = text.view();
  std::size_t end = view.size();
  const auto add = [&](std::size_t begin, std::size_t to) {
    result->push(runtime.heap(), Value::text(text.slice(begin, to - begin)));
  };
  runtime.spend_bytes(view.size());
  if (separator) {
    require_separator(*separator);
    const std::string_view cut = separator->view();
    for (; limit > 0 && end >= cut.size(); --limit) {
      std::size_t at = end - cut.size() + 1;
      do {
        --at;
        runtime.spend_bytes(cut.size());
      } while (at > 0 && view.compare(at, cut.size(), cut) != 0);
      if (view.compare(at, cut.size(), cut) != 0) break;
      add(at + cut.size(), end);
      end = at;
    }
    add(0, end);
  } else {
    const auto skip = [&](bool blanks) {
      while (end > 0) {
        const std::size_t previous = previous_character(view.substr(0, end), end);
        if (is_space(character_at(view, previous).code) != blanks) break;
        end = previous;
      }
    };
    for (skip(true); end > 0; skip(true)) {
      const std::size_t to = end;
      if (limit-- == 0) {
        add(0, to);
        break;
      }
      skip(false);
      add(end, to);
    }
  }
  std::reverse(result->items.begin(), result->items.end());
  return result;
}

ListObject* split_lines(Runtime& runtime, Text text, bool keep_ends) {
  ListObject* result = runtime.list();
  const std::string_view view = text.view();
  runtime.spend_bytes(view.size());
  std::size_t begin = 0;
  for (std::size_t at = 0; at < view.size();) {
    const Character c = character_at(view, at);
    std::size_t next = at + c.size;
    if (is_line_end(c.code)) {
      if (c.code == '\r' && next < view.size() && view[next] == '\n') ++next;
      result->push(runtime.heap(), Value::text(text.slice(begin, (keep_ends ? next : at) - begin)));
      begin = next;
    }
    at = next;
  }
  if (begin < view.size()) result->push(runtime.heap(), Value::text(text.slice(begin, view.size() - begin)));
  return result;
}

Text replace(Runtime& runtime, Text text, Text old, Text fresh, std::int64_t limit) {
  TextBuilder out(runtime);
  const std::string_view view = text.view();
  std::size_t begin = 0;
  if (old.size == 0) {
    for (; limit != 0; --limit) {
      runtime.spend(1);
      out.append(fresh);
      if (begin == view.size()) return out.finish();
      const std::size_t size = character_at(view, begin).size;
      out.append(text.slice(begin, size));
      begin += size;
    }
  }
  for (; old.size > 0 && limit != 0; --limit) {
    const std::size_t at = find_text(runtime, view, old.view(), begin);
    if (at == std::string_view::npos) break;
    if (at == 0 && old.size == view.size()) return fresh;
    out.append(text.slice(begin, at - begin));
    out.append(fresh);
    begin = at + old.size;
  }
  if (begin == 0) return text;
  out.append(text.slice(begin, view.size() - begin));
  return out.finish();
}

Text pad(Runtime& runtime, Text text, std::int64_t width, Side side, Text fill) {
  runtime.spend_bytes(text.size);
  const auto size = static_cast<std::int64_t>(count_characters(text.view()));
  if (count_characters(fill.view()) != 1) fault("text is padded with exactly one character");
  if (width <= size) return text;
  const std::int64_t missing = width - size;
  std::int64_t left = 0;
  if (side == Side::left) left = missing;
  if (side == Side::both) left = missing / 2 + (missing & width & 1);
  const Origin origin = origin_of(fill.from_variables());
  TextBuilder out(runtime);
  out.repeat(fill.view(), static_cast<std::uint64_t>(left), origin);
  out.append(text);
  out.repeat(fill.view(), static_cast<std::uint64_t>(missing - left), origin);
  return out.finish();
}

}  // namespace quarrel::jinja
