#include "app/key_decoder.h"

#include <array>
#include <utility>

#include "text/unicode.h"

namespace quarrel {
namespace {

constexpr char kEscape = '\x1b';
constexpr std::string_view kPasteEnd = "\x1b[201~";
constexpr std::size_t kParameterBytes = 32;
// A sequence longer than this is none that anybody presses.
constexpr std::size_t kSequenceBytes = 4096;

bool is_control(unsigned char byte) { return byte < 0x20 || byte == 0x7F; }

void press(std::vector<KeyPress>& keys, Key key) { keys.push_back({.key = key}); }

constexpr std::array<std::pair<unsigned char, Key>, 24> kControls{{
    {0x01, Key::home},
    {0x02, Key::left},
    {0x03, Key::interrupt},
    {0x04, Key::end_of_file},
    {0x05, Key::end},
    {0x06, Key::right},
    {0x07, Key::cancel},
    {0x08, Key::backspace},
    {0x09, Key::tab},
    {0x0A, Key::enter},
    {0x0B, Key::kill_to_end},
    {0x0C, Key::clear_screen},
    {0x0D, Key::enter},
    {0x0E, Key::next},
    {0x10, Key::previous},
    {0x12, Key::search},
    {0x13, Key::search_forward},
    {0x14, Key::transpose},
    {0x15, Key::kill_to_start},
    {0x17, Key::erase_blank_word_back},
    {0x19, Key::yank},
    {0x1A, Key::suspend},
    {0x1C, Key::quit},
    {0x7F, Key::backspace},
}};

}  // namespace

std::string editable_text(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Char c = decode_utf8(text, at);
    if (c.code == '\r') {
      // A carriage return is a line end, with a line feed after it or without.
      if (at + 1 >= text.size() || text[at + 1] != '\n') result += '\n';
    } else if (c.status != Utf8Status::valid) {
      result += kReplacementText;
    } else if (c.code == '\n' || c.code == '\t' || (c.code >= 0x20 && c.code < 0x7F) || c.code >= 0xA0) {
      result += text.substr(at, c.length);
    }
    at += c.length;
  }
  return result;
}

void KeyDecoder::push(std::string_view bytes, std::vector<KeyPress>& keys) {
  for (const char byte : bytes) {
    switch (state_) {
      case State::ground: ground(byte, keys); break;
      case State::escape: after_escape(byte, keys); break;
      case State::csi: csi(byte, keys); break;
      case State::ss3: ss3(byte, keys); break;
      case State::string:
      case State::string_escape: string(byte, keys); break;
      case State::paste: paste(byte, keys); break;
    }
  }
}

void KeyDecoder::finish(std::vector<KeyPress>& keys) {
  if (!partial_.empty()) {
    partial_.clear();
    keys.push_back({.key = Key::text, .text = std::string(kReplacementText)});
  }
  if (state_ == State::paste) end_paste(keys);
  if (state_ == State::escape) press(keys, Key::escape);
  state_ = State::ground;
}

void KeyDecoder::restart(char byte, std::vector<KeyPress>& keys) {
  state_ = State::ground;
  ground(byte, keys);
}

void KeyDecoder::ground(char byte, std::vector<KeyPress>& keys) {
  const auto value = static_cast<unsigned char>(byte);
  if (partial_.empty() && is_control(value)) {
    control(value, keys);
  } else {
    character(byte, keys);
  }
}

void KeyDecoder::control(unsigned char byte, std::vector<KeyPress>& keys) {
  if (byte == static_cast<unsigned char>(kEscape)) {
    state_ = State::escape;
    return;
  }
  for (const auto& [code, key] : kControls) {
    if (code == byte) return press(keys, key);
  }
}

void KeyDecoder::character(char byte, std::vector<KeyPress>& keys) {
  partial_ += byte;
  const Utf8Char c = decode_utf8(partial_, 0);
  if (c.status == Utf8Status::truncated) return;
  if (keys.empty() || keys.back().key != Key::text) keys.push_back({.key = Key::text});
  std::string& text = keys.back().text;
  const std::string bytes = std::exchange(partial_, {});
  if (c.status == Utf8Status::valid) {
    // C1 control characters are no text.
    if (c.code >= 0xA0 || c.code < 0x80) text += bytes;
    if (text.empty()) keys.pop_back();
    return;
  }
  text += kReplacementText;
  // What could not continue the character may be one of its own: it is no lead of this one, so this ends.
  for (const char rest : std::string_view(bytes).substr(c.length)) ground(rest, keys);
}

void KeyDecoder::after_escape(char byte, std::vector<KeyPress>& keys) {
  length_ = 0;
  parameters_.clear();
  state_ = State::ground;
  switch (byte) {
    case '[': state_ = State::csi; return;
    case 'O': state_ = State::ss3; return;
    case ']':
    case 'P':
    case '_':
    case '^':
    case 'X': state_ = State::string; return;
    case kEscape: state_ = State::escape; return press(keys, Key::escape);
    case 'b':
    case 'B': return press(keys, Key::word_left);
    case 'f':
    case 'F': return press(keys, Key::word_right);
    case 'd':
    case 'D': return press(keys, Key::erase_word);
    case '\x7F':
    case '\x08': return press(keys, Key::erase_word_back);
    case '\r':
    case '\n': return press(keys, Key::line_feed);
    default: break;
  }
  // Alt with another character means nothing; with a control character, that one counts.
  if (is_control(static_cast<unsigned char>(byte))) return control(static_cast<unsigned char>(byte), keys);
  if (static_cast<unsigned char>(byte) >= 0x80) ground(byte, keys);
}

void KeyDecoder::csi(char byte, std::vector<KeyPress>& keys) {
  const auto value = static_cast<unsigned char>(byte);
  if (is_control(value) || value >= 0x80 || ++length_ > kSequenceBytes) return restart(byte, keys);
  if (value < 0x40) {
    if (parameters_.size() < kParameterBytes) parameters_ += byte;
    return;
  }
  // The Linux console's function keys: ESC [ [ A.
  if (byte == '[' && parameters_.empty() && length_ == 1) return;
  state_ = State::ground;
  csi_key(byte, keys);
}

void KeyDecoder::csi_key(char last, std::vector<KeyPress>& keys) {
  if (parameters_ == "200" && last == '~') {
    state_ = State::paste;
    pasted_.clear();
    dropped_ = 0;
    return;
  }
  const std::size_t semicolon = parameters_.find(';');
  const std::string_view number = std::string_view(parameters_).substr(0, semicolon);
  const std::string_view modifier =
      semicolon == std::string::npos ? std::string_view() : std::string_view(parameters_).substr(semicolon + 1);
  // Shift alone changes nothing; Ctrl and Alt make a step a word. Old rxvt writes Ctrl-Left as ESC [ 5 D.
  const bool word = (!modifier.empty() && modifier != "1" && modifier != "2") || (last != '~' && number == "5");
  switch (last) {
    case 'A': return press(keys, Key::up);
    case 'B': return press(keys, Key::down);
    case 'C': return press(keys, word ? Key::word_right : Key::right);
    case 'D': return press(keys, word ? Key::word_left : Key::left);
    case 'H': return press(keys, Key::home);
    case 'F': return press(keys, Key::end);
    case '~': break;
    default: return;
  }
  if (number == "1" || number == "7") return press(keys, Key::home);
  if (number == "4" || number == "8") return press(keys, Key::end);
  if (number == "3") return press(keys, word ? Key::erase_word : Key::erase);
}

void KeyDecoder::ss3(char byte, std::vector<KeyPress>& keys) {
  state_ = State::ground;
  switch (byte) {
    case 'A': return press(keys, Key::up);
    case 'B': return press(keys, Key::down);
    case 'C': return press(keys, Key::right);
    case 'D': return press(keys, Key::left);
    case 'H': return press(keys, Key::home);
    case 'F': return press(keys, Key::end);
    case 'M': return press(keys, Key::enter);
    case 'c': return press(keys, Key::word_right);
    case 'd': return press(keys, Key::word_left);
    default: break;
  }
  if (is_control(static_cast<unsigned char>(byte))) ground(byte, keys);
}

// What a terminal answers to somebody's question: nobody's here, up to its end.
void KeyDecoder::string(char byte, std::vector<KeyPress>& keys) {
  if (state_ == State::string_escape) {
    state_ = State::ground;
    if (byte != '\\') after_escape(byte, keys);
    return;
  }
  if (byte == kEscape) {
    state_ = State::string_escape;
  } else if (byte == '\x07') {
    state_ = State::ground;
  } else if (is_control(static_cast<unsigned char>(byte)) || ++length_ > kSequenceBytes) {
    restart(byte, keys);
  }
}

void KeyDecoder::paste(char byte, std::vector<KeyPress>& keys) {
  // The end's own bytes need room too, or a full paste would never end.
  if (pasted_.size() < paste_limit_ + kPasteEnd.size()) {
    pasted_ += byte;
  } else {
    pasted_.erase(paste_limit_, 1);
    pasted_ += byte;
    ++dropped_;
  }
  if (byte == '~' && pasted_.ends_with(kPasteEnd)) {
    pasted_.resize(pasted_.size() - kPasteEnd.size());
    end_paste(keys);
  }
}

void KeyDecoder::end_paste(std::vector<KeyPress>& keys) {
  state_ = State::ground;
  if (pasted_.size() > paste_limit_) {
    dropped_ += pasted_.size() - paste_limit_;
    pasted_.resize(paste_limit_);
  }
  keys.push_back({.key = Key::paste, .text = editable_text(pasted_), .dropped = dropped_});
  pasted_ = {};
}

}  // namespace quarrel
