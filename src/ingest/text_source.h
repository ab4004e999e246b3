// Texts to be embedded and stored, one after another, wherever they come from: lines, JSON lines, chunks of files. All
// of it may be hostile, so every text is bounded, and what cannot be used is told with its place.
//
// Called by the ingestion, on one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace quarrel {

struct TextRecord {
  std::string text = {};                  // UTF-8, not blank
  std::string id = {};                    // the caller's own; empty: none was given
  std::string source = {};                // a file's name, or its path below the folder
  std::string metadata = {};              // what was given with it, a JSON object; empty: nothing
  std::vector<std::string> columns = {};  // of what was given, one for each name that the source was made with
  std::string position = {};              // where it stood, a JSON object: may change from run to run
  std::string place = {};                 // the same for messages: "lines.txt, line 7"
};

// What became of what was read, beside the texts that were given out.
struct SourceCounts {
  std::uint64_t texts = 0;
  std::uint64_t blank = 0;     // lines and files without a text
  std::uint64_t unusable = 0;  // left out because the caller wanted it so
  std::uint64_t bytes = 0;     // read so far; 0 of what is not known
  std::uint64_t total_bytes = 0;
};

// What cannot be used: the message names the place. Ending in an exception ends the reading.
using UnusableText = std::function<void(const std::string& message)>;

class TextSource {
 public:
  virtual ~TextSource() = default;

  // False at the end. Throws Error: io, and what the handler of unusable texts throws.
  virtual bool next(TextRecord& record) = 0;
  // Starts again, with the same texts if nobody changed them. False: it can be read only once.
  virtual bool rewind() = 0;
  virtual const SourceCounts& counts() const noexcept = 0;
};

// What a journal knows a text by, over runs: its source, its id, the text itself and what was given with it. Texts that
// are alike in these are one text. 128 bits, since millions of them must not meet by chance.
struct TextKey {
  std::uint64_t high = 0;
  std::uint64_t low = 0;
  bool operator==(const TextKey&) const = default;
};
TextKey key_of(const TextRecord& record);

struct TextKeyHash {
  std::size_t operator()(const TextKey& key) const noexcept { return static_cast<std::size_t>(key.low); }
};

// Well-formed UTF-8.
bool is_utf8(std::string_view text) noexcept;
// Nothing but white space.
bool is_blank(std::string_view text) noexcept;

}  // namespace quarrel
