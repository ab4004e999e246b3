#include "text/chat_template.h"

#include <charconv>
#include <ctime>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "text/jinja/characters.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/json.h"
#include "text/jinja/lexer.h"
#include "text/jinja/parser.h"

namespace quarrel {
namespace {

// "template line 3, column 17: …"; lines and characters count from 1.
[[noreturn]] void fail_at(std::string_view source, std::size_t offset, const char* message) {
  const std::string_view before = source.substr(0, std::min(offset, source.size()));
  std::size_t line = 1;
  for (const char c : before) line += c == '\n' ? 1 : 0;
  const std::size_t newline = before.rfind('\n');
  const std::string_view last = newline == std::string_view::npos ? before : before.substr(newline + 1);
  fail(ErrorKind::bad_input, "template line {}, column {}: {}", line, jinja::count_characters(last) + 1, message);
}

// The model's own tokens, which the host passes in: their text is as good as the template's.
bool is_trusted(std::string_view name) { return name.ends_with("_token"); }

bool is_valid(const TemplateClock& clock) {
  return clock.year >= 1 && clock.year <= 9999 && clock.month >= 1 && clock.month <= 12 && clock.day >= 1 &&
         clock.day <= 31 && clock.hour >= 0 && clock.hour <= 23 && clock.minute >= 0 && clock.minute <= 59 &&
         clock.second >= 0 && clock.second <= 60;
}

int days_in(int year, int month) {
  if (month == 2) return (year % 4 == 0 && year % 100 != 0) || year % 400 == 0 ? 29 : 28;
  return month == 4 || month == 6 || month == 9 || month == 11 ? 30 : 31;
}

}  // namespace

TemplateClock TemplateClock::now() {
  const std::time_t seconds = std::time(nullptr);
  std::tm local{};
  if (localtime_r(&seconds, &local) == nullptr) return {};
  return {local.tm_year + 1900, local.tm_mon + 1, local.tm_mday, local.tm_hour, local.tm_min, local.tm_sec};
}

TemplateClock TemplateClock::parse(std::string_view iso_date) {
  TemplateClock clock;
  const auto number = [&](std::size_t at, std::size_t size, int& out) {
    const char* const end = iso_date.data() + at + size;
    const auto result = std::from_chars(iso_date.data() + at, end, out);
    return result.ec == std::errc() && result.ptr == end;
  };
  const bool shaped = iso_date.size() == 10 && iso_date[4] == '-' && iso_date[7] == '-';
  if (!shaped || !number(0, 4, clock.year) || !number(5, 2, clock.month) || !number(8, 2, clock.day) ||
      !is_valid(clock) || clock.day > days_in(clock.year, clock.month)) {
    fail(ErrorKind::usage, "'{}' is not a date of the form YYYY-MM-DD", iso_date);
  }
  return clock;
}

struct ChatTemplate::Program {
  std::string source;      // as it was given
  std::string normalized;  // what offsets count in
  TemplateLimits limits;
  std::unique_ptr<jinja::Template> tree;
};

ChatTemplate::ChatTemplate(std::unique_ptr<Program> program) : program_(std::move(program)) {}
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

const std::string& ChatTemplate::source() const noexcept { return program_->source; }

ChatTemplate ChatTemplate::compile(std::string source, const TemplateLimits& limits) {
  if (source.size() > limits.source_bytes) {
    fail(ErrorKind::bad_input, "the chat template has {} bytes; {} are allowed", source.size(), limits.source_bytes);
  }
  auto program = std::make_unique<Program>();
  program->normalized = jinja::normalize_source(source);
  program->source = std::move(source);
  program->limits = limits;
  try {
    program->tree = jinja::parse_template(program->normalized, limits.depth);
  } catch (const jinja::Fault& problem) {
    fail_at(program->normalized, problem.offset().value_or(0), problem.what());
  }
  return ChatTemplate(std::move(program));
}

RenderedText ChatTemplate::render(const nlohmann::ordered_json& variables, const TemplateClock& clock) const {
  if (!variables.is_object()) fail(ErrorKind::bad_input, "a chat template's variables are a JSON object");
  if (!is_valid(clock)) fail(ErrorKind::usage, "the clock for chat templates shows no date");
  jinja::Runtime runtime(program_->limits, clock);
  std::size_t position = 0;
  try {
    jinja::Interpreter interpreter(runtime, *program_->tree);
    try {
      for (auto it = variables.begin(); it != variables.end(); ++it) {
        const auto name = program_->tree->name_ids.find(it.key());
        if (name == program_->tree->name_ids.end()) continue;
        const bool trusted = it.value().is_string() && is_trusted(it.key());
        const auto origin = trusted ? jinja::Origin::of_template : jinja::Origin::of_variables;
        interpreter.define(name->second, jinja::value_of_json(runtime, it.value(), origin));
      }
      const jinja::StringBuffer& output = interpreter.run();
      return {output.own, output.from_variables};
    } catch (...) {
      position = interpreter.position();
      throw;
    }
  } catch (const jinja::RaisedByTemplate& raised) {
    throw Error(ErrorKind::bad_input, raised.what());
  } catch (const jinja::Fault& problem) {
    fail_at(program_->normalized, problem.offset().value_or(position), problem.what());
  }
}

}  // namespace quarrel
