#include "server/key_record.h"

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <set>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json_depth.h"
#include "base/printable.h"
#include "base/secure_random.h"
#include "base/utc_time.h"

namespace quarrel {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kPrefix = "qk_";
constexpr std::size_t kIdLetters = 10;
constexpr std::size_t kSecretLetters = 43;  // 62^43 is a little more than 2^256
constexpr std::string_view kLetters = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
constexpr std::size_t kSaltBytes = 16;
constexpr std::size_t kMostKeys = 10'000;
constexpr std::size_t kMostModels = 256;
constexpr std::int64_t kMostALimit = 1'000'000'000'000;
constexpr int kVersion = 1;

// Each letter as likely as any other: bytes beyond the last multiple of 62 are drawn again.
std::string random_letters(std::size_t count) {
  constexpr unsigned kFair = 256 / kLetters.size() * kLetters.size();
  std::string letters;
  while (letters.size() < count) {
    for (const unsigned char byte : random_bytes<64>()) {
      if (byte < kFair && letters.size() < count) letters += kLetters[byte % kLetters.size()];
    }
  }
  return letters;
}

using Digest = std::array<unsigned char, 32>;

Digest digest_of(std::string_view salt, std::string_view secret) {
  const std::string text = std::string(salt).append(secret);
  Digest digest{};
  if (EVP_Digest(text.data(), text.size(), digest.data(), nullptr, EVP_sha256(), nullptr) != 1) {
    fail(ErrorKind::internal, "the SHA-256 implementation refused to work");
  }
  return digest;
}

// Of 64 lower-case hexadecimal digits, which the reader of the file has seen to.
Digest read_digest(std::string_view text) noexcept {
  const auto value = [](char c) { return static_cast<unsigned>(c <= '9' ? c - '0' : c - 'a' + 10); };
  Digest digest{};
  for (std::size_t i = 0; i < digest.size() && 2 * i + 1 < text.size(); ++i) {
    digest[i] = static_cast<unsigned char>(value(text[2 * i]) << 4 | value(text[2 * i + 1]));
  }
  return digest;
}

bool is_letters(std::string_view text) noexcept { return text.find_first_not_of(kLetters) == std::string_view::npos; }

bool is_hex(std::string_view text) noexcept {
  return !text.empty() && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

// ---- The file's text ----

[[noreturn]] void refuse(const std::string& what) { fail(ErrorKind::bad_file, "the file of keys {}", what); }

Json seconds(const std::optional<WallTime>& time) {
  return time ? Json(time->time_since_epoch().count()) : Json(nullptr);
}

const Json& field(const Json& object, const char* name, Json::value_t type) {
  const auto found = object.find(name);
  if (found == object.end()) refuse(fmt::format("has a key without '{}'", name));
  const bool whole = type == Json::value_t::number_unsigned && found->is_number_unsigned();
  if (!whole && found->type() != type) refuse(fmt::format("has a '{}' that is not valid", name));
  return *found;
}

std::string text_field(const Json& object, const char* name) {
  return field(object, name, Json::value_t::string).get<std::string>();
}

std::int64_t count_field(const Json& object, const char* name) {
  const auto value = field(object, name, Json::value_t::number_unsigned).get<std::uint64_t>();
  if (value > static_cast<std::uint64_t>(kMostALimit)) refuse(fmt::format("has a '{}' that is too large", name));
  return static_cast<std::int64_t>(value);
}

std::optional<WallTime> time_field(const Json& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end() || found->is_null()) return std::nullopt;
  return WallTime(std::chrono::seconds(count_field(object, name)));
}

std::uint64_t number_field(const Json& object, const char* name) {
  const std::string text = text_field(object, name);
  if (!is_hex(text) || text.size() != 16) refuse(fmt::format("has a '{}' that is not valid", name));
  return std::stoull(text, nullptr, 16);
}

Json json_of(const KeySecret& secret) {
  return {{"id", secret.id},
          {"salt", secret.salt},
          {"hash", secret.hash},
          {"created", seconds(secret.created)},
          {"expires", seconds(secret.expires)}};
}

Json json_of(const KeyRecord& key) {
  Json json = {{"name", key.name}, {"role", role_name(key.role)}, {"models", key.models}};
  json["priority"] = key.priority ? Json(priority_name(*key.priority)) : Json(nullptr);
  json["requests_per_minute"] = key.limits.requests_per_minute;
  json["tokens_per_minute"] = key.limits.tokens_per_minute;
  json["concurrency"] = key.limits.concurrency;
  json["created"] = seconds(key.created);
  json["expires"] = seconds(key.expires);
  json["revoked"] = seconds(key.revoked);
  json["number"] = fmt::format("{:016x}", key.number);
  json["cache_salt"] = fmt::format("{:016x}", key.cache_salt);
  json["secrets"] = Json::array();
  for (const KeySecret& secret : key.secrets) json["secrets"].push_back(json_of(secret));
  return json;
}

KeySecret read_secret(const Json& json) {
  if (!json.is_object()) refuse("has a secret that is not an object");
  KeySecret secret{.id = text_field(json, "id"),
                   .salt = text_field(json, "salt"),
                   .hash = text_field(json, "hash"),
                   .created = time_field(json, "created").value_or(WallTime{}),
                   .expires = time_field(json, "expires")};
  if (secret.id.size() != kIdLetters || !is_letters(secret.id)) refuse("has a secret with an unknown kind of id");
  if (!is_hex(secret.salt) || secret.salt.size() > 128 || !is_hex(secret.hash) || secret.hash.size() != 64) {
    refuse("has a secret whose hash is not valid");
  }
  return secret;
}

std::vector<std::string> read_models(const Json& json) {
  const Json& list = field(json, "models", Json::value_t::array);
  if (list.size() > kMostModels) refuse("has a key with too many models");
  std::vector<std::string> models;
  for (const Json& model : list) {
    if (!model.is_string()) refuse("has a model that is not a name");
    models.push_back(model.get<std::string>());
  }
  return models;
}

KeyRecord read_key(const Json& json) {
  if (!json.is_object()) refuse("has a key that is not an object");
  KeyRecord key{.name = text_field(json, "name"), .role = read_role(text_field(json, "role"))};
  check_key_name(key.name);
  key.models = read_models(json);
  if (const auto priority = json.find("priority"); priority != json.end() && !priority->is_null()) {
    key.priority = read_priority(text_field(json, "priority"));
    if (!key.priority) refuse("has a key with an unknown priority");
  }
  key.limits = {.requests_per_minute = count_field(json, "requests_per_minute"),
                .tokens_per_minute = count_field(json, "tokens_per_minute"),
                .concurrency = count_field(json, "concurrency")};
  key.created = time_field(json, "created").value_or(WallTime{});
  key.expires = time_field(json, "expires");
  key.revoked = time_field(json, "revoked");
  key.number = number_field(json, "number");
  key.cache_salt = number_field(json, "cache_salt");
  const Json& secrets = field(json, "secrets", Json::value_t::array);
  if (secrets.size() > 16) refuse("has a key with too many secrets");
  for (const Json& secret : secrets) key.secrets.push_back(read_secret(secret));
  return key;
}

}  // namespace

KeyState key_state(const KeyRecord& key, const KeySecret& secret, WallTime now) noexcept {
  if (key.revoked) return KeyState::revoked;
  const auto over = [&](const std::optional<WallTime>& end) { return end && *end <= now; };
  return over(key.expires) || over(secret.expires) ? KeyState::expired : KeyState::valid;
}

NewSecret make_secret(WallTime now) {
  const std::string id = random_letters(kIdLetters);
  const std::string secret = random_letters(kSecretLetters);
  NewSecret made{.key = fmt::format("{}{}{}", kPrefix, id, secret)};
  made.stored = {.id = id, .salt = hex_of(random_bytes<kSaltBytes>()), .created = now};
  made.stored.hash = hash_secret(made.stored.salt, secret);
  return made;
}

std::uint64_t random_number() {
  std::uint64_t number = 0;
  while (number == 0) {
    for (const unsigned char byte : random_bytes<sizeof number>()) number = number << 8 | byte;
  }
  return number;
}

std::optional<PresentedKey> split_key(std::string_view key) noexcept {
  if (key.size() != kPrefix.size() + kIdLetters + kSecretLetters || !key.starts_with(kPrefix)) return std::nullopt;
  const std::string_view letters = key.substr(kPrefix.size());
  if (!is_letters(letters)) return std::nullopt;
  return PresentedKey{.id = letters.substr(0, kIdLetters), .secret = letters.substr(kIdLetters)};
}

std::string hash_secret(std::string_view salt, std::string_view secret) { return hex_of(digest_of(salt, secret)); }

// What is compared are bytes: to write a digest out takes longer for some than for others.
bool secret_is_right(const KeySecret& stored, std::string_view secret) {
  const Digest digest = digest_of(stored.salt, secret);
  const Digest wanted = read_digest(stored.hash);
  return CRYPTO_memcmp(digest.data(), wanted.data(), digest.size()) == 0;
}

void check_key_name(const std::string& name) {
  constexpr std::string_view kAllowed = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_.@";
  if (name.empty() || name.size() > 64 || name.find_first_not_of(kAllowed) != std::string::npos) {
    fail(ErrorKind::usage, "'{}' cannot be a key's name: that is 1 to 64 letters, digits, '-', '_', '.' or '@'",
         printable(name));
  }
  // A key in place of its name would end up in files and logs.
  if (split_key(name)) fail(ErrorKind::usage, "a key is called by its name; this is a key itself");
}

Role read_role(std::string_view text) {
  if (text == "use") return Role::use;
  if (text == "admin") return Role::admin;
  fail(ErrorKind::usage, "a key's role is 'use' or 'admin', not '{}'", printable(text));
}

std::string_view role_name(Role role) noexcept { return role == Role::admin ? "admin" : "use"; }

std::optional<Priority> read_priority(std::string_view text) noexcept {
  for (const Priority priority : {Priority::interactive, Priority::normal, Priority::batch}) {
    if (text == priority_name(priority)) return priority;
  }
  return std::nullopt;
}

std::string_view priority_name(Priority priority) noexcept {
  switch (priority) {
    case Priority::interactive: return "interactive";
    case Priority::normal: return "normal";
    case Priority::batch: return "batch";
  }
  return "normal";
}

std::string write_keys(const std::vector<KeyRecord>& keys) {
  Json json = {{"version", kVersion}, {"keys", Json::array()}};
  for (const KeyRecord& key : keys) json["keys"].push_back(json_of(key));
  return json.dump(1) + "\n";
}

std::vector<KeyRecord> read_keys(std::string_view text) {
  if (nests_deeper(text, 8)) refuse("nests too deep");
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) refuse("is not the JSON that it should be");
  const auto version = json.find("version");
  if (version == json.end() || *version != kVersion) refuse("is of a version that this program does not know");
  const auto list = json.find("keys");
  if (list == json.end() || !list->is_array() || list->size() > kMostKeys) refuse("has no list of keys");
  std::vector<KeyRecord> keys;
  std::set<std::string> names, ids;
  for (const Json& each : *list) {
    try {
      keys.push_back(read_key(each));
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::bad_file) throw;
      refuse(fmt::format("has a fault: {}", error.what()));
    }
    if (!names.insert(keys.back().name).second) refuse("has a name twice");
    for (const KeySecret& secret : keys.back().secrets) {
      if (!ids.insert(secret.id).second) refuse("has an id twice");
    }
  }
  return keys;
}

std::string time_text(WallTime time) { return rfc3339(time, 0); }

}  // namespace quarrel
