#include "server/key_store.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <span>
#include <system_error>
#include <utility>

#include "base/descriptor.h"
#include "base/environment.h"
#include "base/error.h"
#include "base/nearest.h"
#include "base/output_file.h"
#include "base/printable.h"

namespace quarrel {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostBytes = std::size_t{64} << 20;

[[noreturn]] void refuse(const fs::path& path, const char* what, int error) {
  fail(error == ENOENT ? ErrorKind::not_found : ErrorKind::io, "cannot {} '{}': {}", what,
       printable(path.string(), 512), std::generic_category().message(error));
}

FileStamp stamp_of(const struct stat& status) noexcept {
  return {.device = status.st_dev,
          .inode = status.st_ino,
          .bytes = static_cast<std::uint64_t>(status.st_size),
          .changed_ns = status.st_ctim.tv_sec * std::int64_t{1'000'000'000} + status.st_ctim.tv_nsec,
          .mode = status.st_mode};
}

// What others could write could give them rights, and hashes are nobody's business either.
void require_private(const struct stat& status, const fs::path& path) {
  const std::string name = printable(path.string(), 512);
  if (!S_ISREG(status.st_mode)) fail(ErrorKind::bad_file, "'{}' is not a regular file", name);
  if (status.st_uid != ::geteuid() && status.st_uid != 0) {
    fail(ErrorKind::bad_file, "the file of keys '{}' belongs to another user", name);
  }
  if ((status.st_mode & 0077) != 0) {
    fail(ErrorKind::bad_file, "others may read or write the file of keys '{}': `chmod 600` keeps it private", name);
  }
}

// Held while a change is made. The file of keys itself cannot be locked: it is another one after each change.
class ChangeLock {
 public:
  explicit ChangeLock(const fs::path& file) : path_(fs::path(file) += ".lock"), descriptor_(open(path_)) {
    int result = 0;
    do {
      result = ::flock(descriptor_.get(), LOCK_EX);
    } while (result != 0 && errno == EINTR);
    if (result != 0) refuse(path_, "lock", errno);
  }

 private:
  static int open(const fs::path& path) {
    const int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (descriptor < 0) refuse(path, "open", errno);
    return descriptor;
  }

  fs::path path_;
  Descriptor descriptor_;
};

void make_folder(const fs::path& folder) {
  std::error_code error;
  if (folder.empty() || fs::is_directory(folder, error)) return;
  fs::create_directories(folder.parent_path(), error);
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) refuse(folder, "create", errno);
}

KeyRecord& find_key(std::vector<KeyRecord>& keys, const std::string& name) {
  const auto found = std::ranges::find(keys, name, &KeyRecord::name);
  if (found != keys.end()) return *found;
  std::vector<std::string> names;
  for (const KeyRecord& key : keys) names.push_back(key.name);
  const std::vector<std::string> near = nearest(name, names, 1);
  fail(ErrorKind::not_found, "there is no key '{}'{}", printable(name),
       near.empty() ? std::string() : fmt::format("; did you mean '{}'?", near.front()));
}

}  // namespace

fs::path default_key_file() {
  if (const auto data = environment("XDG_DATA_HOME"); data && data->starts_with('/')) {
    return fs::path(*data) / "quarrel" / "keys.json";
  }
  const auto home = environment("HOME");
  if (!home || home->empty()) return {};
  return fs::path(*home) / ".local" / "share" / "quarrel" / "keys.json";
}

std::optional<FileStamp> file_stamp(const fs::path& path) {
  struct stat status{};
  if (::stat(path.c_str(), &status) == 0) return stamp_of(status);
  if (errno != ENOENT && errno != ENOTDIR) refuse(path, "look at", errno);
  return std::nullopt;
}

KeyFile read_key_file(const fs::path& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) refuse(path, "open", errno);
  struct stat status{};
  if (::fstat(file.get(), &status) != 0) refuse(path, "read", errno);
  require_private(status, path);
  return {.stamp = stamp_of(status),
          .keys = read_keys(read_all(file.get(), printable(path.string(), 512), kMostBytes))};
}

std::vector<KeyRecord> KeyStore::list() const {
  if (!file_stamp(file_)) return {};
  return read_key_file(file_).keys;
}

// `change` gets the keys and returns what the caller is to have once they are on the disk.
template <typename Change>
auto KeyStore::change(const Change& change) const {
  if (file_.empty()) fail(ErrorKind::usage, "there is no place for a file of keys: set QUARREL_KEYS");
  make_folder(file_.parent_path());
  const ChangeLock lock(file_);
  std::vector<KeyRecord> keys = list();
  auto result = change(keys);
  OutputFile file(file_, OutputAccess::owner);
  file.write(std::as_bytes(std::span<const char>(write_keys(keys))));
  file.commit();
  return result;
}

CreatedKey KeyStore::create(const KeyWishes& wishes, WallTime now) const {
  check_key_name(wishes.name);
  return change([&](std::vector<KeyRecord>& keys) {
    const auto same = std::ranges::find(keys, wishes.name, &KeyRecord::name);
    if (same != keys.end() && !same->revoked) {
      fail(ErrorKind::usage, "the key '{}' already exists: `quarrel key rotate` gives it a new secret", wishes.name);
    }
    if (same != keys.end()) keys.erase(same);
    NewSecret secret = make_secret(now);
    KeyRecord key{.name = wishes.name,
                  .role = wishes.role,
                  .models = wishes.models,
                  .priority = wishes.priority,
                  .limits = wishes.limits,
                  .created = now,
                  .number = random_number(),
                  .cache_salt = random_number()};
    if (wishes.lifetime) key.expires = now + *wishes.lifetime;
    key.secrets.push_back(std::move(secret.stored));
    keys.push_back(key);
    return CreatedKey{.key = std::move(secret.key), .record = std::move(key)};
  });
}

KeyRecord KeyStore::revoke(const std::string& name, WallTime now) const {
  return change([&](std::vector<KeyRecord>& keys) {
    KeyRecord& key = find_key(keys, name);
    if (!key.revoked) key.revoked = now;
    return key;
  });
}

CreatedKey KeyStore::rotate(const std::string& name, std::chrono::seconds overlap, WallTime now) const {
  return change([&](std::vector<KeyRecord>& keys) {
    KeyRecord& key = find_key(keys, name);
    if (key.revoked) fail(ErrorKind::usage, "the key '{}' was revoked: `quarrel key create` makes a new one", name);
    if (key.expires && *key.expires <= now)
      fail(ErrorKind::usage, "the key '{}' has expired: revoke it, make another", name);
    std::erase_if(key.secrets, [&](const KeySecret& old) { return key_state(key, old, now) != KeyState::valid; });
    for (KeySecret& old : key.secrets) old.expires = std::min(old.expires.value_or(now + overlap), now + overlap);
    // However often somebody rotates within one overlap: the newest of the old ones stay.
    constexpr std::size_t kMostOld = 7;
    if (key.secrets.size() > kMostOld) key.secrets.erase(key.secrets.begin(), key.secrets.end() - kMostOld);
    NewSecret secret = make_secret(now);
    key.secrets.push_back(std::move(secret.stored));
    return CreatedKey{.key = std::move(secret.key), .record = key};
  });
}

}  // namespace quarrel
