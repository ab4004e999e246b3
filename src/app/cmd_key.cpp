// quarrel key: makes, lists, revokes and renews the keys that a server asks its clients for.

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <memory>

#include <CLI/CLI.hpp>

#include "app/commands.h"
#include "app/input.h"
#include "app/settings_in_force.h"
#include "app/terminal.h"
#include "app/text_table.h"
#include "app/value_checks.h"
#include "base/environment.h"
#include "base/error.h"
#include "base/nearest.h"
#include "base/printable.h"
#include "server/key_store.h"
#include "server/model_tag.h"
#include "store/store.h"

namespace quarrel {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kMostALimit = 1'000'000'000;

struct KeyCommand {
  std::string action;
  std::string name;
  std::filesystem::path file;
  bool admin = false;
  std::vector<std::string> models;
  std::string expires;
  std::string priority;
  KeyLimits limits;
  std::string overlap;
  bool json = false;
};

WallTime now() { return std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now()); }

// "90s", "30m", "12h", "30d", "52w".
std::chrono::seconds read_time(const std::string& text, const char* option) {
  std::int64_t count = 0;
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), count);
  std::int64_t unit = 0;
  if (fault == std::errc{} && end + 1 == text.data() + text.size()) {
    switch (*end) {
      case 's': unit = 1; break;
      case 'm': unit = 60; break;
      case 'h': unit = 3600; break;
      case 'd': unit = 86400; break;
      case 'w': unit = 7 * 86400; break;
      default: break;
    }
  }
  constexpr std::int64_t kMost = std::int64_t{100} * 365 * 86400;
  if (unit == 0 || count < 0 || count > kMost / unit) {
    fail(ErrorKind::usage, "{} takes a number and s, m, h, d or w, such as 12h or 90d, up to a hundred years, not '{}'",
         option, printable(text));
  }
  return std::chrono::seconds(count * unit);
}

std::string state_text(const KeyRecord& key) {
  for (const KeySecret& secret : key.secrets) {
    if (key_state(key, secret, now()) == KeyState::valid) return "valid";
  }
  return key.revoked ? "revoked" : "expired";
}

Json json_of(const KeyRecord& key) {
  const auto time = [](const std::optional<WallTime>& at) { return at ? Json(time_text(*at)) : Json(nullptr); };
  const auto limit = [](std::int64_t value) { return value > 0 ? Json(value) : Json(nullptr); };
  Json json = {{"name", key.name}, {"role", role_name(key.role)}, {"state", state_text(key)}, {"models", key.models}};
  json["priority"] = key.priority ? Json(priority_name(*key.priority)) : Json(nullptr);
  json["requests_per_minute"] = limit(key.limits.requests_per_minute);
  json["tokens_per_minute"] = limit(key.limits.tokens_per_minute);
  json["concurrency"] = limit(key.limits.concurrency);
  json["created"] = time_text(key.created);
  json["expires"] = time(key.expires);
  json["revoked"] = time(key.revoked);
  json["secrets"] = Json::array();
  for (const KeySecret& secret : key.secrets) {
    json["secrets"].push_back(
        {{"id", secret.id}, {"created", time_text(secret.created)}, {"expires", time(secret.expires)}});
  }
  return json;
}

std::string list_text(const std::vector<KeyRecord>& keys) {
  using Side = TextTable::Side;
  TextTable table({{"NAME"},
                   {"ROLE"},
                   {"STATE"},
                   {"REQUESTS/MIN", Side::right},
                   {"TOKENS/MIN", Side::right},
                   {"AT ONCE", Side::right},
                   {"PRIORITY"},
                   {"EXPIRES"},
                   {"MODELS"}});
  const auto limit = [](std::int64_t value) { return value > 0 ? fmt::format("{}", value) : std::string("-"); };
  for (const KeyRecord& key : keys) {
    std::string models;
    for (const std::string& model : key.models) models += (models.empty() ? "" : ", ") + printable(model);
    table.add_row({key.name, std::string(role_name(key.role)), state_text(key), limit(key.limits.requests_per_minute),
                   limit(key.limits.tokens_per_minute), limit(key.limits.concurrency),
                   std::string(key.priority ? priority_name(*key.priority) : "-"),
                   key.expires ? time_text(*key.expires) : "-", models.empty() ? "all" : models});
  }
  return table.text();
}

// The key alone on standard output, so that a script can take it; what is to be known of it beside that.
int show_new(const CreatedKey& created, const KeyCommand& command, const std::string& words) {
  if (command.json) {
    Json json = json_of(created.record);
    json["key"] = created.key;
    write_output(dump_json(json) + "\n");
    return 0;
  }
  write_output(created.key + "\n");
  write_error(words);
  return 0;
}

// Those of the stores, by both their names, and of the settings file.
std::vector<std::string> known_models() {
  std::vector<std::string> known;
  for (const ListedModel& model : ModelStore(StorePaths::from_environment()).list()) {
    known.push_back(model.name);
    if (!model.alias.empty()) known.push_back(model.alias);
  }
  try {
    for (const auto& each : settings_in_force({}, environment).settings.models) known.push_back(each.first);
  } catch (const Error&) {
    // It is `serve` that says what is wrong with the file; here its names are missed, no more.
  }
  return known;
}

// It may be right all the same: a server is started with files, too, and a model may come later.
void warn_of_unknown_models(const std::vector<std::string>& models) {
  if (models.empty()) return;
  const std::vector<std::string> known = known_models();
  for (const std::string& model : models) {
    if (std::ranges::any_of(known, [&](const std::string& each) { return is_one_model(each, model); })) continue;
    const std::vector<std::string> near = nearest(model, known, 1);
    write_error(fmt::format("warning: there is no model '{}' here{}\n", printable(model),
                            near.empty() ? "" : fmt::format("; did you mean '{}'?", printable(near.front()))));
  }
}

int create(const KeyCommand& command, const KeyStore& store) {
  KeyWishes wishes{.name = command.name,
                   .role = command.admin ? Role::admin : Role::use,
                   .models = command.models,
                   .limits = command.limits};
  if (!command.priority.empty()) wishes.priority = read_priority(command.priority);
  if (!command.expires.empty()) wishes.lifetime = read_time(command.expires, "--expires");
  const CreatedKey created = store.create(wishes, now());
  // Shown before anything else can fail.
  const int code =
      show_new(created, command,
               fmt::format("This is the key '{}', role {}. It is shown this once: only a hash of it is kept, in {}.\n",
                           created.record.name, role_name(created.record.role), store.file().string()));
  warn_of_unknown_models(command.models);
  return code;
}

int rotate(const KeyCommand& command, const KeyStore& store) {
  const std::chrono::seconds overlap =
      command.overlap.empty() ? std::chrono::hours(24) : read_time(command.overlap, "--overlap");
  const CreatedKey created = store.rotate(command.name, overlap, now());
  return show_new(created, command,
                  fmt::format("This is the new key '{}', shown this once. The old one is taken until {}.\n",
                              created.record.name, time_text(now() + overlap)));
}

int revoke(const KeyCommand& command, const KeyStore& store) {
  const KeyRecord key = store.revoke(command.name, now());
  if (command.json) {
    write_output(dump_json(json_of(key)) + "\n");
  } else {
    write_error(fmt::format("The key '{}' is revoked. A running server knows it within a second.\n", key.name));
  }
  return 0;
}

int list(const KeyCommand& command, const KeyStore& store) {
  const std::vector<KeyRecord> keys = store.list();
  if (command.json) {
    Json json = Json::array();
    for (const KeyRecord& key : keys) json.push_back(json_of(key));
    write_output(dump_json(json) + "\n");
    return 0;
  }
  write_output(list_text(keys));
  if (keys.empty()) write_error("There are no keys yet: `quarrel key create NAME` makes one.\n");
  return 0;
}

// What another action would use must not pass unnoticed.
void check(const KeyCommand& command) {
  const bool creates = command.action == "create";
  const bool has_wishes = command.admin || !command.models.empty() || !command.expires.empty() ||
                          !command.priority.empty() || command.limits.any();
  if (has_wishes && !creates) fail(ErrorKind::usage, "what a key may do is set when it is created");
  if (!command.overlap.empty() && command.action != "rotate") fail(ErrorKind::usage, "--overlap is for `key rotate`");
  if (command.action == "list" && !command.name.empty()) fail(ErrorKind::usage, "`key list` takes no name");
  if (command.action != "list" && command.name.empty())
    fail(ErrorKind::usage, "which key? `key {} NAME`", command.action);
}

// Where a server of the same settings looks.
std::filesystem::path file_of(const KeyCommand& command) {
  if (!command.file.empty()) return command.file;
  const std::filesystem::path set = settings_in_force({}, environment).settings.serve.admission.keys.file;
  return set.empty() ? default_key_file() : set;
}

int run(const KeyCommand& command) {
  check(command);
  const KeyStore store(file_of(command));
  if (command.action == "create") return create(command, store);
  if (command.action == "rotate") return rotate(command, store);
  if (command.action == "revoke") return revoke(command, store);
  return list(command, store);
}

}  // namespace

void add_key(CLI::App& app, CommandContext& context) {
  CLI::App* key = app.add_subcommand("key", "Create, list, revoke and rotate the keys of a server's clients");
  auto command = std::make_shared<KeyCommand>();
  key->add_option("ACTION", command->action, "What to do")
      ->check(one_of({"create", "list", "revoke", "rotate"}))
      ->required();
  key->add_option("NAME", command->name, "Which key: 1 to 64 letters, digits, '-', '_', '.' or '@'");
  key->add_flag("--admin", command->admin, "It may also pull, create, copy, delete, load and unload models");
  key->add_option("--model", command->models, "A model that it may use; without any, all")->type_name("MODEL");
  key->add_option("--expires", command->expires, "When it expires: 12h, 90d; default: never")
      ->check(not_empty())
      ->type_name("TIME");
  key->add_option("--requests-per-minute", command->limits.requests_per_minute, "Most requests per minute")
      ->check(whole_number(1, kMostALimit))
      ->type_name("N");
  key->add_option("--tokens-per-minute", command->limits.tokens_per_minute, "Most tokens read and generated per minute")
      ->check(whole_number(1, kMostALimit))
      ->type_name("N");
  key->add_option("--concurrency", command->limits.concurrency, "How many of its requests may run at once")
      ->check(whole_number(1, kMostALimit))
      ->type_name("N");
  key->add_option("--priority", command->priority, "Priority of its requests, and the highest that they may ask for")
      ->check(one_of({"interactive", "normal", "batch"}));
  key->add_option("--overlap", command->overlap, "How long the old key stays valid after `rotate` (24h)")
      ->check(not_empty())
      ->type_name("TIME");
  key->add_option("--keys", command->file, "The file of keys; default: as for `serve`")
      ->check(not_empty())
      ->type_name("FILE");
  key->add_flag("--json", command->json, "JSON");
  key->footer(
      "A key is shown once, on standard output; a file that only you can read keeps a salted hash of it. A running\n"
      "server reads that file again when it has changed. Once a key exists, every request needs one.\n\n"
      "Examples:\n  quarrel key create laptop\n  quarrel key create ci --model default --expires 90d "
      "--requests-per-minute 60\n  quarrel key rotate ci --overlap 12h\n  quarrel key revoke laptop");
  key->callback([command, &context] { context.run = [command] { return run(*command); }; });
}

}  // namespace quarrel
