// Texts from a file or standard input, a line each: the text itself, or a JSON object with `text`, perhaps `id`, and
// whatever else belongs to it. Read as it is wanted, a line in memory at a time, and some bytes for each `id` that was
// read. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "base/descriptor.h"
#include "ingest/text_source.h"

namespace quarrel {

enum class LineFormat { text, json };

struct LineSourceOptions {
  LineFormat format = LineFormat::text;
  std::vector<std::string> columns = {};            // members of the objects that become columns of their own
  std::size_t longest_line = std::size_t{8} << 20;  // bytes
};

class LineSource final : public TextSource {
 public:
  // "-" is standard input. Throws Error: not_found, io, usage for a folder.
  LineSource(const std::string& path, LineSourceOptions options, UnusableText unusable);

  bool next(TextRecord& record) override;
  bool rewind() override;
  const SourceCounts& counts() const noexcept override { return counts_; }

 private:
  enum class Line { text, too_long, end };
  Line read_line();
  bool fill();
  bool take_text(TextRecord& record);
  bool take_object(TextRecord& record);
  bool read_object(nlohmann::ordered_json& object, TextRecord& record);
  bool refuse(const std::string& why);
  std::string place() const;

  const LineSourceOptions options_;
  const UnusableText unusable_;
  const std::string name_;  // what the texts' source is called
  Descriptor file_;
  const bool rewinds_;
  std::string buffer_;
  std::size_t read_ = 0;  // of the buffer
  std::string line_;
  std::uint64_t number_ = 0;                                     // of the line, from 1
  std::unordered_map<TextKey, std::uint64_t, TextKeyHash> ids_;  // callers' own, and the lines that had them first
  SourceCounts counts_;
};

}  // namespace quarrel
