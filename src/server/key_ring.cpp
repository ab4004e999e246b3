#include "server/key_ring.h"

#include <fmt/format.h>

#include <utility>

#include "base/error.h"

namespace quarrel {
namespace {

constexpr std::chrono::seconds kLookEvery{1};
constexpr std::string_view kSingle = "api-key";  // no id of a secret has a dash

std::shared_ptr<const Caller> caller_of(const KeyRecord& key, const KeySecret& secret) {
  return std::make_shared<const Caller>(Caller{.name = key.name,
                                               .credential = secret.id,
                                               .role = key.role,
                                               .models = key.models,
                                               .key = key.number,
                                               .salt = key.cache_salt,
                                               .priority = key.priority,
                                               .limits = key.limits});
}

}  // namespace

KeyRing::KeyRing(KeyRingOptions options, Log& log)
    : options_(std::move(options)), log_(log), nobody_(make_secret({}).stored) {
  if (!options_.single_key.empty()) {
    // Hashed like the others: what is compared then has one length, and says nothing of the key's.
    single_ = nobody_;
    single_->hash = hash_secret(single_->salt, options_.single_key);
    single_caller_ = std::make_shared<const Caller>(Caller{.name = std::string(kSingle),
                                                           .credential = std::string(kSingle),
                                                           .role = Role::admin,
                                                           .key = random_number(),
                                                           .salt = random_number()});
  }
  if (options_.file.empty()) return;
  looked_at_ = options_.now ? options_.now() : Clock::now();
  if (!file_stamp(options_.file)) return;
  KeyFile file = read_key_file(options_.file);
  seen_ = file.stamp;
  table_ = make_table(std::move(file.keys));
}

std::shared_ptr<const KeyRing::Table> KeyRing::make_table(std::vector<KeyRecord> keys) {
  auto table = std::make_shared<Table>();
  for (KeyRecord& key : keys) {
    Entry entry;
    for (std::size_t i = 0; i < key.secrets.size(); ++i) {
      table->by_id.emplace(key.secrets[i].id, Place{.entry = table->entries.size(), .secret = i});
      entry.callers.push_back(caller_of(key, key.secrets[i]));
    }
    entry.record = std::move(key);
    table->entries.push_back(std::move(entry));
  }
  return table;
}

// Of the mutex's owner, like the next two. What went wrong may go right the next time: it is tried each time, and said
// once.
void KeyRing::look() {
  try {
    const std::optional<FileStamp> stamp = file_stamp(options_.file);
    if (stamp == seen_) {
      complaint_.clear();
    } else if (stamp) {
      read_anew();
    } else {
      complain("the file of keys has gone: the keys that were in it are still taken");
    }
  } catch (const std::exception& error) {
    complain(
        fmt::format("the file of keys cannot be looked at: {}; the keys from before are still taken", error.what()));
  }
}

void KeyRing::read_anew() {
  try {
    KeyFile file = read_key_file(options_.file);
    std::shared_ptr<const Table> table = make_table(std::move(file.keys));
    seen_ = file.stamp;
    table_ = std::move(table);
    complaint_.clear();
    log_.info("the file of keys has changed and was read again: {} keys", table_->entries.size());
  } catch (const std::exception& error) {
    // Who puts keys there does not want everybody in.
    if (table_ == nullptr) table_ = std::make_shared<const Table>();
    complain(fmt::format("the file of keys has changed and cannot be used: {}; the keys from before are still taken",
                         error.what()));
  }
}

void KeyRing::complain(const std::string& what) {
  if (std::exchange(complaint_, what) != what) log_.warn("{}", what);
}

std::shared_ptr<const KeyRing::Table> KeyRing::table() {
  const std::scoped_lock lock(mutex_);
  if (options_.file.empty()) return table_;
  const Clock::time_point now = options_.now ? options_.now() : Clock::now();
  if (now - looked_at_ >= kLookEvery) {
    looked_at_ = now;
    look();
  }
  return table_;
}

bool KeyRing::has_keys() { return single_.has_value() || table() != nullptr; }

WallTime KeyRing::wall_time() const {
  if (options_.wall_time) return options_.wall_time();
  return std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now());
}

bool KeyRing::accepts(const Caller& caller) {
  if (caller.credential == kOwner) return true;
  if (caller.credential == kSingle) return single_.has_value();
  if (caller.credential.empty()) return !has_keys();
  const std::shared_ptr<const Table> keys = table();
  if (keys == nullptr) return false;
  const auto found = keys->by_id.find(caller.credential);
  if (found == keys->by_id.end()) return false;
  const KeyRecord& record = keys->entries[found->second.entry].record;
  return key_state(record, record.secrets[found->second.secret], wall_time()) == KeyState::valid;
}

KeyRing::Result KeyRing::check(std::string_view key) {
  const std::shared_ptr<const Table> keys = table();
  const std::optional<PresentedKey> presented = split_key(key);
  const Entry* entry = nullptr;
  const KeySecret* secret = &nobody_;
  std::shared_ptr<const Caller> caller;
  if (presented && keys != nullptr) {
    if (const auto found = keys->by_id.find(presented->id); found != keys->by_id.end()) {
      entry = &keys->entries[found->second.entry];
      secret = &entry->record.secrets[found->second.secret];
      caller = entry->callers[found->second.secret];
    }
  }
  const bool right = options_.compare(*secret, presented ? presented->secret : key);
  if (single_ && options_.compare(*single_, key)) return {.verdict = Verdict::right, .caller = single_caller_};
  if (!right || entry == nullptr) return {};
  switch (key_state(entry->record, *secret, wall_time())) {
    case KeyState::revoked: return {.verdict = Verdict::revoked, .name = entry->record.name};
    case KeyState::expired: return {.verdict = Verdict::expired, .name = entry->record.name};
    case KeyState::valid: break;
  }
  return {.verdict = Verdict::right, .caller = caller, .name = entry->record.name};
}

}  // namespace quarrel
