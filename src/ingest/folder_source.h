// Texts from a folder: its text files, and those of the folders in it, cut into chunks. Files come in the order of
// their paths. What is hidden (its name begins with a dot), no plain file, or no text (a NUL, bytes that are not UTF-8)
// is passed over: folders hold such things. A file in memory at a time. One thread.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include "ingest/chunker.h"
#include "ingest/text_source.h"

namespace quarrel {

struct FolderSourceOptions {
  ChunkOptions chunks = {};
  std::size_t largest_file = std::size_t{64} << 20;  // bytes
  std::size_t columns = 0;                           // that records have, all empty: files have no members
};

class FolderSource final : public TextSource {
 public:
  // Throws Error: not_found, usage where it is no folder, io.
  FolderSource(std::filesystem::path folder, FolderSourceOptions options, CountTokens count, UnusableText unusable);

  // A record's source is the path below the folder, its position the offset and the bytes of the chunk in the file.
  bool next(TextRecord& record) override;
  bool rewind() override;
  const SourceCounts& counts() const noexcept override { return counts_; }

 private:
  bool open_next();
  void refuse(const std::string& name, const std::string& why);

  const std::filesystem::path folder_;
  const FolderSourceOptions options_;
  const CountTokens count_;
  const UnusableText unusable_;
  std::vector<std::filesystem::path> files_;  // below the folder
  std::size_t next_file_ = 0;
  std::string source_;  // of the file that is open
  std::string text_;
  std::vector<Chunk> chunks_;
  std::size_t next_chunk_ = 0;
  SourceCounts counts_;
};

}  // namespace quarrel
