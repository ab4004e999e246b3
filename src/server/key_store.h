// The file of keys: who may read it, and every change to it. Used by `quarrel key`, and read by the running server
// (key_ring.h).
//
// Threads and processes: a change takes a lock beside the file, reads it, and puts a new one in its place by a rename;
// so two changes never lose one another, whoever reads has the whole of one version, and a process that is killed at
// any moment leaves one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "server/key_record.h"

namespace quarrel {

// Where it is if nobody names one: quarrel/keys.json in XDG_DATA_HOME or ~/.local/share; empty without a home.
std::filesystem::path default_key_file();

// Which version of a file lies there. A rename changes it.
struct FileStamp {
  std::uint64_t device = 0, inode = 0, bytes = 0;
  std::int64_t changed_ns = 0;
  std::uint32_t mode = 0;
  bool operator==(const FileStamp&) const = default;
};
// None: there is no such file. Throws Error(io) where that cannot be known: who may not look must not take it for none.
std::optional<FileStamp> file_stamp(const std::filesystem::path& path);

struct KeyFile {
  FileStamp stamp = {};
  std::vector<KeyRecord> keys = {};
};
// Throws Error: not_found, io, bad_file for what is no file of keys, and for one that others may read or write.
KeyFile read_key_file(const std::filesystem::path& path);

// What a new key is to be.
struct KeyWishes {
  std::string name = {};
  Role role = Role::use;
  std::vector<std::string> models = {};
  std::optional<Priority> priority = {};
  KeyLimits limits = {};
  std::optional<std::chrono::seconds> lifetime = {};  // none: until it is revoked
};

struct CreatedKey {
  std::string key = {};  // to be shown once
  KeyRecord record = {};
};

class KeyStore {
 public:
  explicit KeyStore(std::filesystem::path file) : file_(std::move(file)) {}

  const std::filesystem::path& file() const noexcept { return file_; }
  std::vector<KeyRecord> list() const;  // none where there is no file

  // Throw what read_key_file and writing throw; usage for a name that is taken or cannot be one, not_found for a name
  // that is unknown.
  CreatedKey create(const KeyWishes& wishes, WallTime now) const;
  KeyRecord revoke(const std::string& name, WallTime now) const;
  // A new secret; the old ones are good for `overlap` more.
  CreatedKey rotate(const std::string& name, std::chrono::seconds overlap, WallTime now) const;

 private:
  template <typename Change>
  auto change(const Change& change) const;

  std::filesystem::path file_;
};

}  // namespace quarrel
