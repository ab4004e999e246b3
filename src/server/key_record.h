// What is known of a key: whose it is, what it may do, and of its secret a salted hash. The text that a file of keys
// holds, and the secrets themselves, are made and read here and nowhere else. Plain values; any thread.
//
// A key is `qk_`, ten letters and digits that say which one it is, and 43 that are its secret: 256 random bits. So many
// cannot be guessed however fast a hash is, and one round of SHA-256 is enough where a password would need thousands.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/caller.h"

namespace quarrel {

using WallTime = std::chrono::sys_seconds;

// One secret of a key; while it is rotated there are two.
struct KeySecret {
  std::string id = {};    // what the key says of itself, in clear
  std::string salt = {};  // hexadecimal
  std::string hash = {};  // SHA-256 of salt and secret, hexadecimal
  WallTime created = {};
  std::optional<WallTime> expires = {};  // after a rotation; none: with the key
};

struct KeyRecord {
  std::string name = {};
  Role role = Role::use;
  std::vector<std::string> models = {};   // that it may use; empty: all
  std::optional<Priority> priority = {};  // of its requests, and the highest that they may ask for
  KeyLimits limits = {};
  WallTime created = {};
  std::optional<WallTime> expires = {};
  std::optional<WallTime> revoked = {};
  std::uint64_t number = 0;      // its place in queues; random, never used again
  std::uint64_t cache_salt = 0;  // random: what it has had cached is found by nobody else
  std::vector<KeySecret> secrets = {};
};

enum class KeyState : std::uint8_t { valid, expired, revoked };
KeyState key_state(const KeyRecord& key, const KeySecret& secret, WallTime now) noexcept;

// A key as its owner gets it, once.
struct NewSecret {
  std::string key = {};  // "qk_…"
  KeySecret stored = {};
};
NewSecret make_secret(WallTime now);
std::uint64_t random_number();  // for KeyRecord::number and cache_salt; never 0

// The two parts of what a request presented; nullopt: nothing that we have made.
struct PresentedKey {
  std::string_view id = {};
  std::string_view secret = {};
};
std::optional<PresentedKey> split_key(std::string_view key) noexcept;
// Takes as long whatever the secret is.
bool secret_is_right(const KeySecret& stored, std::string_view secret);
std::string hash_secret(std::string_view salt, std::string_view secret);

// Throw Error(usage) with what may stand there.
void check_key_name(const std::string& name);
Role read_role(std::string_view text);
std::string_view role_name(Role role) noexcept;
std::optional<Priority> read_priority(std::string_view text) noexcept;  // nullopt: there is none of that name
std::string_view priority_name(Priority priority) noexcept;

// The text of a file of keys. Reading throws Error(bad_file) that says what is wrong, never with anything of a secret.
std::string write_keys(const std::vector<KeyRecord>& keys);
std::vector<KeyRecord> read_keys(std::string_view text);

// "2026-01-31T12:00:00Z"
std::string time_text(WallTime time);

}  // namespace quarrel
