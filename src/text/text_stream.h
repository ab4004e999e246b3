// Tokens in, text out, as they come: never half a UTF-8 character, never the beginning of a stop string that may still
// be completed. One TextStream a reply; not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace quarrel {

// What ends a text, prepared for the search: once, however many replies there are. Never changes; any thread.
class StopStrings {
 public:
  // Empty ones are ignored.
  explicit StopStrings(const std::vector<std::string>& texts);

 private:
  friend class TextStream;
  // With where to go on after a mismatch (Knuth, Morris, Pratt): a byte costs constant time whatever the strings are.
  struct Stop {
    std::string text;
    std::vector<std::uint32_t> fallback;
  };
  std::vector<Stop> stops_;
};

class TextStream {
 public:
  // `continues` says that the reply follows other text (a prompt), so its first token is not the first of the text.
  // The tokenizer must outlive the stream. `show_special`: control tokens appear as they are spelled.
  TextStream(const Tokenizer& tokenizer, std::shared_ptr<const StopStrings> stops, bool continues,
             bool show_special = false);
  TextStream(const Tokenizer& tokenizer, const std::vector<std::string>& stop_strings, bool continues,
             bool show_special = false)
      : TextStream(tokenizer, std::make_shared<const StopStrings>(stop_strings), continues, show_special) {}

  // Text that may be shown now. Bytes that can never become a character come out as U+FFFD.
  std::string push(TokenId id);

  // What is left at the end: an unfinished character becomes U+FFFD, a held-back stop prefix comes out as it is.
  std::string finish();

  // A stop string was met: it and everything after it was dropped, `push` gives nothing any more. The first one to be
  // complete counts, of several that end together the longest.
  bool stopped() const noexcept { return stopped_; }

 private:
  std::string release(bool at_end);
  void put(std::string_view character);

  const Tokenizer& tokenizer_;
  std::shared_ptr<const StopStrings> stops_;
  std::vector<std::size_t> matched_;  // so much of each stop string the text's end is
  std::string bytes_;                 // decoded, not yet text: at most an unfinished character
  std::string held_;                  // whole characters that could begin a stop string
  bool first_;
  bool show_special_;
  bool stopped_ = false;
};

}  // namespace quarrel
