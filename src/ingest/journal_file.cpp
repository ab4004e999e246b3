#include "ingest/journal_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <optional>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/printable.h"
#include "base/sha256.h"

namespace quarrel {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kFormat = "quarrel ingest journal ";
constexpr std::string_view kFirstLine = "quarrel ingest journal 1\n";
constexpr std::size_t kEntryStart = 5;  // length and kind
constexpr std::size_t kChecksum = 8;
constexpr std::uint64_t kEnding = 64;  // bytes, a checksum among them

template <typename Number>
void put_number(std::string& payload, Number value) {
  for (std::size_t i = 0; i < sizeof value; ++i) payload += static_cast<char>((value >> (8 * i)) & 0xFF);
}

template <typename Number>
Number take_number(std::string_view& payload) {
  if (payload.size() < sizeof(Number)) fail(ErrorKind::bad_file, "an entry of the journal ends too early");
  Number value = 0;
  for (std::size_t i = 0; i < sizeof value; ++i) {
    value |= static_cast<Number>(static_cast<unsigned char>(payload[i])) << (8 * i);
  }
  payload.remove_prefix(sizeof value);
  return value;
}

std::uint64_t checksum(std::string_view bytes) {
  const std::string digest = sha256(bytes);
  std::uint64_t value = 0;
  std::from_chars(digest.data(), digest.data() + 16, value, 16);
  return value;
}

// Whether the file of that descriptor is the one that lies there.
bool lies_at(int descriptor, const fs::path& path) {
  struct stat named{};
  struct stat held{};
  return ::fstat(descriptor, &held) == 0 && ::stat(path.c_str(), &named) == 0 && named.st_dev == held.st_dev &&
         named.st_ino == held.st_ino;
}

// To write it, locked unless another has it. Between opening and locking it may lose its name (`discard`): what is
// written to such a file nobody finds again.
int open_journal(const fs::path& path, JournalAccess access) {
  if (access == JournalAccess::read) return ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  std::error_code error;
  if (path.has_parent_path()) fs::create_directories(path.parent_path(), error);
  for (;;) {
    const int number = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (number < 0 || ::flock(number, LOCK_EX | LOCK_NB) != 0 || lies_at(number, path)) return number;
    ::close(number);
  }
}

bool is_kind(char c) { return c >= 'A' && c <= 'Z'; }

// Where the entry at `from` ends if its length and kind are to be believed.
std::optional<std::size_t> end_of_entry(std::string_view content, std::size_t from) {
  std::string_view front = content.substr(from);
  if (front.size() < kEntryStart + kChecksum) return std::nullopt;
  const std::size_t length = take_number<std::uint32_t>(front);
  if (!is_kind(front.front()) || front.size() - 1 < length + kChecksum) return std::nullopt;
  return from + kEntryStart + length + kChecksum;
}

// The same of one whose checksum is right.
std::optional<std::size_t> end_of_whole_entry(std::string_view content, std::size_t from) {
  const std::optional<std::size_t> end = end_of_entry(content, from);
  if (!end) return std::nullopt;
  std::string_view sum = content.substr(*end - kChecksum, kChecksum);
  if (take_number<std::uint64_t>(sum) != checksum(content.substr(from, *end - kChecksum - from))) return std::nullopt;
  return end;
}

// Whether the file ends at `at`, or goes on with another entry or what a crash may leave of one.
bool may_follow_an_entry(std::string_view content, std::size_t at) {
  if (content.size() - at < kEntryStart) return true;
  const char kind = content[at + kEntryStart - 1];
  return is_kind(kind) || kind == 0;
}

// Whether a whole entry begins somewhere after `from`. A damaged length does not say where, so every byte is tried; the
// checksum is computed where what is there, and what follows it, look like entries.
bool whole_entry_follows(std::string_view content, std::size_t from) {
  for (std::size_t at = from + 1; at < content.size(); ++at) {
    const std::optional<std::size_t> end = end_of_entry(content, at);
    if (!end) continue;
    if (may_follow_an_entry(content, *end) && end_of_whole_entry(content, at)) return true;
  }
  return false;
}

}  // namespace

void put_u32(std::string& payload, std::uint32_t value) { put_number(payload, value); }
void put_u64(std::string& payload, std::uint64_t value) { put_number(payload, value); }
std::uint32_t take_u32(std::string_view& payload) { return take_number<std::uint32_t>(payload); }
std::uint64_t take_u64(std::string_view& payload) { return take_number<std::uint64_t>(payload); }

JournalFile::JournalFile(fs::path path, JournalAccess access, const Visitor& visitor)
    : path_(std::move(path)), file_(open_journal(path_, access)) {
  if (file_.get() < 0) refuse("open");
  const bool writes = access == JournalAccess::write;
  if (writes) {
    lock();
    if (!lies_at(file_.get(), path_)) refuse_two();  // who had it has discarded it meanwhile
  }
  const std::string content = read_from(0);
  if (content.size() < kFirstLine.size() && kFirstLine.starts_with(content)) {
    if (writes) write_first_line();  // a new one, or one that ended here
    return;
  }
  if (!content.starts_with(kFirstLine)) {
    fail(
        ErrorKind::bad_file, "{} is {}", printable(path_.string()),
        content.starts_with(kFormat) ? "a journal of another version of the program" : "not a journal of `embed --to`");
  }
  size_ = kFirstLine.size();
  take_entries(std::string_view(content).substr(kFirstLine.size()), writes, visitor);
}

void JournalFile::lock() {
  if (::flock(file_.get(), LOCK_EX | LOCK_NB) != 0) refuse_two();
}

void JournalFile::refuse_two() const {
  fail(ErrorKind::busy, "another process writes the journal {}: two runs must not fill one dataset at once",
       printable(path_.string()));
}

void JournalFile::take_entries(std::string_view content, bool writes, const Visitor& visitor) {
  std::size_t at = 0;
  while (const std::optional<std::size_t> end = end_of_whole_entry(content, at)) {
    visitor(static_cast<std::uint8_t>(content[at + kEntryStart - 1]),
            content.substr(at + kEntryStart, *end - kChecksum - kEntryStart - at));
    size_ += *end - at;
    at = *end;
  }
  if (whole_entry_follows(content, at)) {
    fail(ErrorKind::bad_file,
         "the journal {} is damaged at byte {}, and entries follow that: nothing of it was changed. Bring back a copy "
         "of it; without one, its rows can only be added to, with another journal",
         printable(path_.string()), size_);
  }
  if (writes && at < content.size() && ::ftruncate(file_.get(), static_cast<off_t>(size_)) != 0) refuse("repair");
}

void JournalFile::release() {
  ending_ = ending();
  if (::flock(file_.get(), LOCK_UN) != 0) refuse("unlock");
}

bool JournalFile::resume(const Visitor& visitor) {
  lock();
  struct stat held{};
  if (::fstat(file_.get(), &held) != 0) refuse("read");
  const bool is_same = lies_at(file_.get(), path_) && std::cmp_greater_equal(held.st_size, size_);
  if (!is_same || ending() != ending_) {
    ::flock(file_.get(), LOCK_UN);  // whoever opens it anew locks it too
    return false;
  }
  if (std::cmp_greater(held.st_size, size_)) take_entries(read_from(size_), true, visitor);
  return true;
}

void JournalFile::discard() noexcept {
  if (lies_at(file_.get(), path_)) ::unlink(path_.c_str());
}

void JournalFile::refuse(const char* what) const {
  const int error = errno;
  fail(ErrorKind::io, "cannot {} the journal '{}': {}", what, printable(path_.string()),
       std::generic_category().message(error));
}

std::string JournalFile::read_from(std::uint64_t offset) {
  struct stat status{};
  if (::fstat(file_.get(), &status) != 0) refuse("read");
  if (!S_ISREG(status.st_mode))
    fail(ErrorKind::usage, "the journal '{}' is not a regular file", printable(path_.string()));
  if (::lseek(file_.get(), static_cast<off_t>(offset), SEEK_SET) < 0) refuse("read");
  const std::uint64_t left = static_cast<std::uint64_t>(status.st_size) - offset;
  std::string content = read_all(file_.get(), printable(path_.string()), static_cast<std::size_t>(left) + 1);
  bytes_read_ += content.size();
  return content;
}

std::string JournalFile::ending() {
  std::string bytes(std::min<std::uint64_t>(size_, kEnding), '\0');
  const ssize_t got = ::pread(file_.get(), bytes.data(), bytes.size(), static_cast<off_t>(size_ - bytes.size()));
  if (got < 0) refuse("read");
  bytes.resize(static_cast<std::size_t>(got));
  bytes_read_ += bytes.size();
  return bytes;
}

// Its name must be on the disk as well.
void JournalFile::write_first_line() {
  write_at(0, kFirstLine);
  size_ = kFirstLine.size();
  sync();
  const fs::path folder = path_.has_parent_path() ? path_.parent_path() : fs::path(".");
  const Descriptor parent(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (parent.get() < 0 || ::fsync(parent.get()) != 0) refuse("write");
}

void JournalFile::write_at(std::uint64_t offset, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t put = ::pwrite(file_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) refuse("write");
    bytes.remove_prefix(static_cast<std::size_t>(put));
    offset += static_cast<std::uint64_t>(put);
  }
}

// A part of it that was written before the disk was full lies behind what counts, where the next entry is written.
void JournalFile::append(std::uint8_t kind, std::string_view payload) {
  if (payload.size() > 0xFFFF'FFFF) fail(ErrorKind::internal, "an entry of the journal is too large");
  std::string entry;
  entry.reserve(kEntryStart + payload.size() + kChecksum);
  put_u32(entry, static_cast<std::uint32_t>(payload.size()));
  entry += static_cast<char>(kind);
  entry += payload;
  put_u64(entry, checksum(entry));
  write_at(size_, entry);
  size_ += entry.size();
}

void JournalFile::clear() {
  if (size_ == kFirstLine.size()) return;
  if (::ftruncate(file_.get(), static_cast<off_t>(kFirstLine.size())) != 0) refuse("write");
  size_ = kFirstLine.size();
}

void JournalFile::sync() {
  if (::fdatasync(file_.get()) != 0) refuse("write");
}

}  // namespace quarrel
