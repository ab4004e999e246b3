// The keys that a running server takes: those of the file of keys, which is read again when it has changed, and the one
// that the server was started with. Any thread.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/log.h"
#include "server/caller.h"
#include "server/key_store.h"

namespace quarrel {

struct KeyRingOptions {
  std::filesystem::path file = {};  // need not exist; empty: there is none
  std::string single_key = {};      // of the server's own; empty: there is none
  // For tests: other clocks, and a count of what is compared.
  std::function<WallTime()> wall_time = {};
  std::function<Clock::time_point()> now = {};
  std::function<bool(const KeySecret& stored, std::string_view secret)> compare = secret_is_right;
};

class KeyRing {
 public:
  // Throws what read_key_file throws, but not for a file that is not there.
  KeyRing(KeyRingOptions options, Log& log);

  // Whether requests need one. A file without any good key counts: revoking the last one opens nothing. So does one
  // that has gone.
  bool has_keys();

  enum class Verdict : std::uint8_t { right, wrong, expired, revoked };
  struct Result {
    Verdict verdict = Verdict::wrong;
    std::shared_ptr<const Caller> caller = {};  // of a right one
    std::string name = {};                      // of one that was right once; for the log
  };
  // Takes as long for a key that there is as for one that there is not.
  Result check(std::string_view key);
  // Whether who came in by a key, or without one, would still come in now: for connections that stay open.
  bool accepts(const Caller& caller);
  // Of callers that need no key, whoever else does.
  static constexpr std::string_view kOwner = "owner";
  // True for the shape of the keys that `quarrel key` makes, which nobody guesses.
  static bool is_made_by_us(std::string_view key) noexcept { return split_key(key).has_value(); }

 private:
  struct Entry {
    KeyRecord record = {};
    std::vector<std::shared_ptr<const Caller>> callers = {};  // one a secret
  };
  struct Place {
    std::size_t entry = 0, secret = 0;
  };
  struct Table {
    std::vector<Entry> entries = {};
    std::map<std::string, Place, std::less<>> by_id = {};
  };

  std::shared_ptr<const Table> table();
  WallTime wall_time() const;
  void look();
  void read_anew();
  void complain(const std::string& what);
  static std::shared_ptr<const Table> make_table(std::vector<KeyRecord> keys);

  const KeyRingOptions options_;
  Log& log_;
  std::optional<KeySecret> single_;
  std::shared_ptr<const Caller> single_caller_;
  const KeySecret nobody_;              // whom unknown keys are compared with
  std::mutex mutex_;                    // guards all below
  std::shared_ptr<const Table> table_;  // null: there is no file of keys
  std::optional<FileStamp> seen_;       // the version of the file that is in force; none: there was no file
  std::string complaint_;               // what was last said of a file that cannot be used; empty: it can
  Clock::time_point looked_at_ = {};
};

}  // namespace quarrel
