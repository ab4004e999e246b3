#include "app/line_history.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <system_error>
#include <thread>
#include <unordered_set>
#include <utility>

#include "app/key_decoder.h"

namespace quarrel {
namespace {

namespace fs = std::filesystem;

constexpr mode_t kPrivate = 0600;
// What is read of a file at most, and the size above which it is rewritten with what counts.
constexpr std::size_t kReadBytes = 16u << 20;
constexpr std::size_t kTrimLines = 2 * LineHistory::kMostEntries;
// How the library that kept this file before began it; it wrote blanks and others as \ and three octal digits.
constexpr std::string_view kOldHeader = "_HiStOrY_V2_";

class File {
 public:
  explicit File(int descriptor) : descriptor_(descriptor) {}
  ~File() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  int get() const noexcept { return descriptor_; }
  explicit operator bool() const noexcept { return descriptor_ >= 0; }

 private:
  int descriptor_;
};

bool write_all(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = ::write(descriptor, text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    text.remove_prefix(static_cast<std::size_t>(count));
  }
  return true;
}

// Whoever holds the lock writes one line. If it takes longer, that process stands still: not a reason to stand still
// too.
bool lock_soon(int descriptor) {
  for (int attempt = 0; attempt < 25; ++attempt) {
    if (::flock(descriptor, LOCK_EX | LOCK_NB) == 0) return true;
    if (errno != EWOULDBLOCK && errno != EINTR) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return false;
}

// The file, locked, for reading and appending; -1 if it cannot be had. Another process may put a new file in its place
// while we wait for the lock: then that one is taken.
int open_locked(const fs::path& path) {
  for (int attempt = 0; attempt < 16; ++attempt) {
    // Not blocking: whoever put a pipe there shall not hang the chat.
    const int descriptor = ::open(path.c_str(), O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK, kPrivate);
    if (descriptor < 0) return -1;
    struct stat opened{};
    struct stat named{};
    const bool regular = ::fstat(descriptor, &opened) == 0 && S_ISREG(opened.st_mode);
    const bool locked = regular && lock_soon(descriptor);
    if (locked && ::stat(path.c_str(), &named) == 0 && named.st_ino == opened.st_ino && named.st_dev == opened.st_dev) {
      if ((opened.st_mode & 0777) != kPrivate) ::fchmod(descriptor, kPrivate);
      return descriptor;
    }
    ::close(descriptor);
    if (!locked) return -1;
  }
  return -1;
}

// Only to look, where writing is not allowed.
int open_readable(const fs::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  struct stat info{};
  if (descriptor >= 0 && (::fstat(descriptor, &info) != 0 || !S_ISREG(info.st_mode))) {
    ::close(descriptor);
    return -1;
  }
  return descriptor;
}

// The end of the file, from a line's start.
std::string read_tail(int descriptor) {
  struct stat info{};
  if (::fstat(descriptor, &info) != 0) return {};
  const auto size = static_cast<std::size_t>(std::max<off_t>(info.st_size, 0));
  const std::size_t begin = size - std::min(size, kReadBytes);
  std::string text(size - begin, '\0');
  std::size_t filled = 0;
  while (filled < text.size()) {
    const ssize_t count =
        ::pread(descriptor, text.data() + filled, text.size() - filled, static_cast<off_t>(begin + filled));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    filled += static_cast<std::size_t>(count);
  }
  text.resize(filled);
  if (begin > 0) text.erase(0, std::min(text.find('\n'), text.size()));
  return text;
}

std::string decode_old(std::string_view line) {
  const auto octal = [](char c) { return c >= '0' && c <= '7'; };
  std::string entry;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] != '\\' || i + 1 >= line.size()) {
      entry += line[i];
    } else if (i + 3 < line.size() && octal(line[i + 1]) && octal(line[i + 2]) && octal(line[i + 3])) {
      entry += static_cast<char>((line[i + 1] - '0') * 64 + (line[i + 2] - '0') * 8 + (line[i + 3] - '0'));
      i += 3;
    } else {
      entry += line[++i];
    }
  }
  return entry;
}

// The last ones without repeats, the newest last.
void keep_last(std::vector<std::string>& entries) {
  std::unordered_set<std::string_view> seen;
  std::vector<std::string> kept;
  for (auto entry = entries.rbegin(); entry != entries.rend() && kept.size() < LineHistory::kMostEntries; ++entry) {
    if (seen.insert(*entry).second) kept.push_back(*entry);
  }
  std::reverse(kept.begin(), kept.end());
  entries = std::move(kept);
}

// Puts a new file in the place of the old one, whose lock the caller holds.
void rewrite(const fs::path& name, const std::vector<std::string>& entries) {
  std::error_code unresolved;
  const fs::path target = fs::canonical(name, unresolved);  // a link stays one
  const fs::path& path = unresolved ? name : target;
  std::string text;
  for (const std::string& entry : entries) text += encode_history(entry) + "\n";
  const std::string temporary = path.string() + "." + std::to_string(::getpid());
  std::error_code fault;
  {
    const File file(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, kPrivate));
    if (file && write_all(file.get(), text)) fs::rename(temporary, path, fault);
  }
  fs::remove(temporary, fault);
}

}  // namespace

std::string encode_history(std::string_view entry) {
  std::string line;
  for (const char c : entry) {
    if (c == '\\') {
      line += "\\\\";
    } else if (c == '\n') {
      line += "\\n";
    } else {
      line += c;
    }
  }
  return line;
}

std::string decode_history(std::string_view line) {
  std::string entry;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '\\' && i + 1 < line.size() && (line[i + 1] == 'n' || line[i + 1] == '\\')) {
      entry += line[++i] == 'n' ? '\n' : '\\';
    } else {
      entry += line[i];
    }
  }
  return entry;
}

LineHistory::LineHistory(fs::path path) : path_(std::move(path)) {
  if (path_.empty() || ::access(path_.c_str(), F_OK) != 0) return;
  const File locked(open_locked(path_));
  const File unlocked(locked ? -1 : open_readable(path_));
  if (!locked && !unlocked) return;
  const std::string text = read_tail(locked ? locked.get() : unlocked.get());
  const bool old = text.starts_with(kOldHeader);
  std::size_t lines = 0;
  for (std::size_t at = old ? std::min(text.find('\n'), text.size()) : 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = std::string_view(text).substr(at, end - at);
    at = end + 1;
    if (line.empty()) continue;
    ++lines;
    // Others may have written there: nothing of it must reach the terminal as it is.
    entries_.push_back(editable_text(old ? decode_old(line) : decode_history(line)));
  }
  keep_last(entries_);
  if (locked && (old || lines > kTrimLines || text.size() >= kReadBytes)) rewrite(path_, entries_);
}

void LineHistory::remember(std::string entry) {
  std::erase(entries_, entry);
  entries_.push_back(std::move(entry));
  if (entries_.size() > kMostEntries) entries_.erase(entries_.begin());
}

void LineHistory::add(const std::string& entry) {
  if (entry.empty()) return;
  const bool again = !entries_.empty() && entries_.back() == entry;
  remember(entry);
  if (again || path_.empty() || entry.size() > kLongestKept) return;
  std::error_code fault;
  fs::create_directories(path_.parent_path(), fault);
  const File file(open_locked(path_));
  if (!file) return;
  std::string line = encode_history(entry) + "\n";
  // A line that somebody did not come to the end of shall not swallow ours.
  struct stat info{};
  char last = '\n';
  if (::fstat(file.get(), &info) == 0 && info.st_size > 0 && ::pread(file.get(), &last, 1, info.st_size - 1) == 1 &&
      last != '\n') {
    line.insert(line.begin(), '\n');
  }
  write_all(file.get(), line);
}

std::size_t LineHistory::find_older(std::string_view text, std::size_t before) const {
  for (std::size_t i = std::min(before, entries_.size()); i-- > 0;) {
    if (entries_[i].find(text) != std::string::npos) return i;
  }
  return kNone;
}

std::size_t LineHistory::find_newer(std::string_view text, std::size_t after) const {
  for (std::size_t i = after + 1; i < entries_.size(); ++i) {
    if (entries_[i].find(text) != std::string::npos) return i;
  }
  return kNone;
}

}  // namespace quarrel
