#include "app/chat_text.h"

#include <fmt/format.h>

#include "app/style.h"
#include "app/text_table.h"
#include "app/word_wrap.h"

namespace quarrel {
namespace {

std::string wrapped(std::string_view sentence, Stream stream) {
  const bool wraps = moves_cursor(stream);
  WordWrap wrap([&] { return wraps ? terminal_columns(stream) : 0; });
  return wrap.push(fmt::format("{}\n", sentence));
}

}  // namespace

std::string_view trim(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n";
  const std::size_t begin = text.find_first_not_of(kBlank);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

std::pair<std::string_view, std::string_view> split_word(std::string_view text) {
  text = trim(text);
  const std::size_t end = text.find_first_of(" \t");
  if (end == std::string_view::npos) return {text, {}};
  return {text.substr(0, end), trim(text.substr(end))};
}

void say(std::string_view sentence) { write_output(wrapped(sentence, Stream::output)); }

void warn(std::string_view sentence) {
  write_error(wrapped(Palette(Stream::error).paint(Style::notice, sentence), Stream::error));
}

void say_field(std::string_view name, std::string_view value, std::size_t indent) {
  const bool wraps = moves_cursor(Stream::output);
  const auto width = wraps ? static_cast<std::size_t>(terminal_columns(Stream::output)) : 0;
  write_output(field_line(name, value.empty() ? "(none)" : value, indent, width));
}

}  // namespace quarrel
