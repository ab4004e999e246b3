#include "text/text_stream.h"

#include <algorithm>
#include <utility>

#include "text/unicode.h"

namespace quarrel {
namespace {

// For each prefix of `text` the longest shorter prefix that also ends it.
std::vector<std::uint32_t> fallbacks(std::string_view text) {
  std::vector<std::uint32_t> result(text.size(), 0);
  std::size_t matched = 0;
  for (std::size_t i = 1; i < text.size(); ++i) {
    while (matched > 0 && text[i] != text[matched]) matched = result[matched - 1];
    if (text[i] == text[matched]) ++matched;
    result[i] = static_cast<std::uint32_t>(matched);
  }
  return result;
}

}  // namespace

StopStrings::StopStrings(const std::vector<std::string>& texts) {
  for (const std::string& stop : texts) {
    std::string text = to_valid_utf8(stop);  // as the text itself will be
    if (text.empty()) continue;
    std::vector<std::uint32_t> fallback = fallbacks(text);
    stops_.push_back({std::move(text), std::move(fallback)});
  }
}

TextStream::TextStream(const Tokenizer& tokenizer, std::shared_ptr<const StopStrings> stops, bool continues,
                       bool show_special)
    : tokenizer_(tokenizer),
      stops_(std::move(stops)),
      matched_(stops_->stops_.size(), 0),
      first_(!continues),
      show_special_(show_special) {}

std::string TextStream::push(TokenId id) {
  if (stopped_) return {};
  bytes_ += tokenizer_.piece(id, first_, show_special_);
  first_ = first_ && tokenizer_.is_hidden(id);
  return release(false);
}

std::string TextStream::finish() {
  if (stopped_) return {};
  return release(true);
}

std::string TextStream::release(bool at_end) {
  std::size_t at = 0;
  while (at < bytes_.size() && !stopped_) {
    const Utf8Char c = decode_utf8(bytes_, at);
    if (c.status == Utf8Status::truncated && !at_end) break;
    put(c.status == Utf8Status::valid ? std::string_view(bytes_).substr(at, c.length) : kReplacementText);
    at += c.length;
  }
  bytes_.erase(0, at);
  std::size_t keep = 0;
  if (!stopped_ && !at_end) {
    for (const std::size_t matched : matched_) keep = std::max(keep, matched);
  }
  std::string shown = held_.substr(0, held_.size() - keep);
  held_.erase(0, held_.size() - keep);
  return shown;
}

// Appends a character to the held text, or ends the text where a stop string is complete.
void TextStream::put(std::string_view character) {
  for (const char c : character) {
    held_ += c;
    std::size_t complete = 0;
    for (std::size_t i = 0; i < matched_.size(); ++i) {
      const StopStrings::Stop& stop = stops_->stops_[i];
      std::size_t& matched = matched_[i];
      while (matched > 0 && stop.text[matched] != c) matched = stop.fallback[matched - 1];
      if (stop.text[matched] == c) ++matched;
      if (matched == stop.text.size()) complete = std::max(complete, matched);
    }
    if (complete > 0) {
      held_.resize(held_.size() - complete);
      stopped_ = true;
      return;
    }
  }
}

}  // namespace quarrel
