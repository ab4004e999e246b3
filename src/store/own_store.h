// Quarrel's own store: a folder of GGUF files, some of which were pulled. Called by ModelStore and Pull; stateless, so
// that any thread may call. What a user names is compared with names found on disk, never joined into a path.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "base/sha256.h"
#include "store/pull.h"

namespace quarrel {

inline constexpr std::string_view kModelExtension = ".gguf";

// A model of the store: one file, or the parts of a split one.
struct StoredFile {
  // Without the extension and, for a split model, without the part's number; the file's name where that is one of
  // `pull`.
  std::string name;
  std::vector<std::filesystem::path> parts;  // the first one is what is opened

  const std::filesystem::path& path() const { return parts.front(); }
};

// GGUF files of a folder, sorted, and links of such names whose files are gone; hidden ones are somebody's work in
// progress.
std::vector<std::filesystem::path> gguf_files(const std::filesystem::path& folder);
// A symbolic link that leads to nothing.
bool is_gone(const std::filesystem::path& path);

// The models of a store, sorted by name; none where the folder is absent or may not be read.
std::vector<StoredFile> stored_files(const std::filesystem::path& folder);

// All files of the model that a path names: those that the name of a part says there are, whether they exist or not,
// else the file alone.
std::vector<std::filesystem::path> parts_of(const std::filesystem::path& path);
// Whether a file of that name, which has no extension here, would be a part of a split model: "big-00002-of-00003".
bool names_a_part(std::string_view stem);
// How the file of such a part ends, counted from 1: "-00002-of-00003.gguf"; ".gguf" where there is one alone.
std::string file_ending(std::size_t number, std::size_t count);

// A name's file, without the extension: a slash cannot be in it and is spelled %2F.
std::string file_stem(std::string_view name);
// Where the settings of a model of that name lie.
std::filesystem::path settings_path(const std::filesystem::path& folder, std::string_view name);

// By name or file name, or by the name that `pull` knows it by. Letter case makes no difference, except between two
// that nothing else tells apart.
std::optional<StoredFile> find_stored(const std::filesystem::path& folder, const std::string& name);

// The row of the table with this name; null without one. `file_row`: the row that a file of the store was pulled by.
const Pullable* find_pullable(std::string_view name);
const Pullable* file_row(const std::filesystem::path& path);

// What is noted beside a model that was pulled or found whole, and beside its further names: size, time of modification
// and digest in a line. While that still fits the file, nobody has touched it since.
std::filesystem::path stamp_path(const std::filesystem::path& model);
std::string stamp_line(const std::filesystem::path& model, std::string_view digest);  // empty without the model
std::string read_stamp(const std::filesystem::path& model);                           // empty without a stamp
std::string stamp_digest(std::string_view stamp);
// Only saves time later, so that a failure, as in a store that may only be read, is no error.
void write_stamp(const std::filesystem::path& model, std::string_view digest);
// Notes beside a further name of a file what is noted beside the file, also where that no longer fits: the other name
// has changed as much.
void carry_stamp(const std::filesystem::path& model, const std::filesystem::path& further);

// Before another file takes the model's place: what was noted does not hold for that one.
void remove_stamp(const std::filesystem::path& model);

// Why a model cannot be used any more: a file that it is a link to is gone. A sentence that says so and what to do, or
// nothing.
std::optional<std::string> lost_file(const StoredFile& model);

// Whether a model is no longer what was put into the store, by size and stamp alone: a sentence that says so and what
// to do, or nothing. A file without a stamp is its owner's affair.
std::optional<std::string> change_of(const StoredFile& model);

// The same by reading the files. Those that still have their digest get a stamp that fits again. One that is replaced
// while it is read, by a pull perhaps, is read again, and left alone if that goes on. Throws Error as sha256_file does.
std::optional<std::string> verify_stored(const StoredFile& model, const HashProgress& progress = {},
                                         const std::stop_token& stop = {});

}  // namespace quarrel
