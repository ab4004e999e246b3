#include "store/modelfile.h"

#include <algorithm>

#include "base/error.h"
#include "base/lower_case.h"
#include "base/printable.h"

namespace quarrel {
namespace {

constexpr std::string_view kBlanks = " \t\r";
constexpr std::string_view kLongQuote = "\"\"\"";

class Reader {
 public:
  explicit Reader(std::string_view text) : rest_(text) {}

  // False at the end. Comments and empty lines are passed over.
  bool next_instruction(std::string& name) {
    for (;;) {
      skip(" \t\r\n");
      if (rest_.empty()) return false;
      if (!rest_.starts_with('#')) break;
      take_line();
    }
    name = lower_case(take_word());
    return true;
  }

  std::string take_word() {
    skip(kBlanks);
    const std::size_t end = std::min(rest_.find_first_of(" \t\r\n"), rest_.size());
    return advance(end);
  }

  // The rest of the line, or what stands between quotes: those of three go over several lines.
  std::string take_value(std::string_view instruction) {
    skip(kBlanks);
    for (const std::string_view quote : {kLongQuote, std::string_view("\"")}) {
      if (!rest_.starts_with(quote)) continue;
      advance(quote.size());
      const std::size_t end = rest_.find(quote);
      if (end == std::string_view::npos) refuse(instruction, "has a quote that is not closed");
      std::string value = advance(end);
      advance(quote.size());
      if (const std::string after = take_line(); after.find_first_not_of(kBlanks) != std::string::npos) {
        refuse(instruction, "has something after its closing quote");
      }
      return value;
    }
    std::string value = take_line();
    value.erase(value.find_last_not_of(kBlanks) + 1);
    if (value.empty()) refuse(instruction, "has no value");
    return value;
  }

  [[noreturn]] void refuse(std::string_view instruction, std::string_view why) const {
    fail(ErrorKind::bad_input, "line {} of the Modelfile: '{}' {}", line_, printable(instruction), why);
  }
  std::size_t line() const noexcept { return line_; }

 private:
  void skip(std::string_view characters) { advance(std::min(rest_.find_first_not_of(characters), rest_.size())); }
  std::string take_line() {
    std::string line = advance(std::min(rest_.find('\n'), rest_.size()));
    return line;
  }
  std::string advance(std::size_t bytes) {
    std::string taken(rest_.substr(0, bytes));
    line_ += static_cast<std::size_t>(std::ranges::count(taken, '\n'));
    rest_.remove_prefix(bytes);
    return taken;
  }

  std::string_view rest_;
  std::size_t line_ = 1;
};

}  // namespace

Modelfile read_modelfile(std::string_view text) {
  Modelfile file;
  Reader reader(text);
  std::string name;
  while (reader.next_instruction(name)) {
    if (name == "from") {
      if (!file.from.empty()) reader.refuse(name, "comes twice");
      file.from = reader.take_value(name);
    } else if (name == "system") {
      file.system = reader.take_value(name);
    } else if (name == "template") {
      file.template_text = reader.take_value(name);
    } else if (name == "license") {
      file.license += (file.license.empty() ? "" : "\n") + reader.take_value(name);
    } else if (name == "parameter") {
      std::string parameter = lower_case(reader.take_word());
      file.parameters.emplace_back(std::move(parameter), reader.take_value(name));
    } else if (name == "adapter" || name == "message" || name == "renderer" || name == "parser" || name == "requires") {
      fail(ErrorKind::unsupported, "line {} of the Modelfile: '{}' is not supported", reader.line(), name);
    } else {
      reader.refuse(name, "is not an instruction");
    }
  }
  return file;
}

}  // namespace quarrel
