// The settings of `serve`: what a value may be, where it comes from, and who counts most.
#include <gtest/gtest.h>

#include <fstream>
#include <set>

#include "app/settings_file.h"
#include "app/settings_in_force.h"
#include "base/error.h"
#include "support/temp_dir.h"

namespace quarrel {
namespace {

using Variables = std::map<std::string, std::string, std::less<>>;

const SettingInfo& row(std::string_view key) {
  for (const auto& each : serve_settings()) {
    if (each.info.key == key) return each.info;
  }
  throw std::out_of_range(std::string(key));
}

class Settings : public ::testing::Test {
 protected:
  std::string file(const std::string& text) {
    const std::string path = (folder_.path() / "config.toml").string();
    std::ofstream(path) << text;
    return path;
  }
  static SettingsInForce resolve(const GivenSettings& given, const Variables& variables = {}) {
    return settings_in_force(given, [&](std::string_view name) -> std::optional<std::string> {
      const auto found = variables.find(name);
      return found == variables.end() ? std::nullopt : std::optional(found->second);
    });
  }
  static SettingInForce entry(const SettingsInForce& in_force, std::string_view name) {
    for (const SettingInForce& each : in_force.list) {
      if (each.name == name) return each;
    }
    throw std::out_of_range(std::string(name));
  }
  void expect_refused(const std::string& text, const std::string& words) {
    const std::string path = file(text);
    try {
      resolve({.file = path});
      ADD_FAILURE() << text << " was taken";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage);
      EXPECT_EQ(std::string(error.what()), path + ", " + words);
    }
  }

 private:
  test::TempDir folder_;
};

TEST_F(Settings, EachSourceOverridesTheOneBefore) {
  const std::string path = file("[server]\nport = 1001\n\nhost = \"::1\"\n[engine]\nthreads = 3\n");
  GivenSettings given{.file = path};
  const auto port = [&](const Variables& variables = {}) {
    const SettingsInForce in_force = resolve(given, variables);
    const SettingInForce found = entry(in_force, "server.port");
    EXPECT_EQ(found.value->integer(), in_force.settings.serve.http.port);
    return std::pair(in_force.settings.serve.http.port, found.source);
  };
  EXPECT_EQ(port(), std::pair(std::uint16_t{1001}, path + ", line 2"));
  EXPECT_EQ(port({{"WEBUI_PORT", "1002"}}), std::pair(std::uint16_t{1002}, std::string("WEBUI_PORT")));
  EXPECT_EQ(port({{"WEBUI_PORT", "1002"}, {"QUARREL_PORT", "1003"}}),
            std::pair(std::uint16_t{1003}, std::string("QUARREL_PORT")));
  EXPECT_EQ(port({{"QUARREL_PORT", ""}}).first, 1001);
  given.flags = {{&row("server.port"), {"1004"}}};
  EXPECT_EQ(port({{"QUARREL_PORT", "1003"}}), std::pair(std::uint16_t{1004}, std::string("--port")));
  const SettingsInForce in_force = resolve(given, {{"QUARREL_THREADS", "2"}});
  EXPECT_EQ(in_force.settings.serve.http.address, "::1");
  EXPECT_EQ(in_force.settings.machine.threads, 2);
  EXPECT_EQ(entry(in_force, "server.drain").source, "default");
  EXPECT_EQ(in_force.settings.drain, std::chrono::seconds(30));
  EXPECT_FALSE(entry(in_force, "server.unix_socket").value);
}

TEST_F(Settings, ADeviceStandsInPlaceOfNoBackendThatCountsMore) {
  const std::string path = file("[engine]\nbackend = \"reference\"\ndevice = \"cuda:1\"\n");
  GivenSettings given{.file = path};
  const auto device = [&](const Variables& variables = {}) {
    const SettingsInForce in_force = resolve(given, variables);
    EXPECT_EQ(entry(in_force, "engine.device").value.has_value(), !in_force.settings.machine.device.empty());
    return in_force.settings.machine.device;
  };
  EXPECT_EQ(device(), "cuda:1");
  EXPECT_EQ(device({{"QUARREL_BACKEND", "cpu"}}), "");
  EXPECT_EQ(device({{"QUARREL_BACKEND", "cpu"}, {"QUARREL_DEVICE", "cuda:2"}}), "cuda:2");
  given.flags = {{&row("engine.backend"), {"cpu"}}};
  EXPECT_EQ(device({{"QUARREL_DEVICE", "cuda:2"}}), "");
  given.flags = {{&row("engine.device"), {"cuda:3"}}};
  EXPECT_EQ(device({{"QUARREL_BACKEND", "cpu"}}), "cuda:3");
}

TEST_F(Settings, WhoSaidItIsKnown) {
  test::TempDir home;
  std::filesystem::create_directories(home.path() / ".config/quarrel");
  std::ofstream(home.path() / ".config/quarrel/config.toml") << "[server]\nport = 7\nhost = \"::1\"";
  const Variables usual = {{"HOME", home.path().string()}};
  EXPECT_EQ(resolve({}).origin("server.port"), SettingOrigin::standing);
  EXPECT_EQ(resolve({}, usual).origin("server.port"), SettingOrigin::standing);
  const std::string path = file("[server]\nport = 8");
  GivenSettings given{.file = path};
  EXPECT_EQ(resolve(given, usual).origin("server.port"), SettingOrigin::named_file);
  EXPECT_EQ(resolve(given, usual).origin("server.unix_socket"), SettingOrigin::standing);
  EXPECT_EQ(resolve({}, {{"QUARREL_CONFIG", path}}).origin("server.port"), SettingOrigin::named_file);
  EXPECT_EQ(resolve(given, {{"QUARREL_PORT", "9"}}).origin("server.port"), SettingOrigin::variable);
  given.flags = {{&row("server.port"), {"10"}}};
  EXPECT_EQ(resolve(given, {{"QUARREL_PORT", "9"}}).origin("server.port"), SettingOrigin::flag);
}

TEST_F(Settings, TheFileIsNamedOrLiesInItsPlace) {
  test::TempDir home;
  const std::string folder = (home.path() / ".config/quarrel").string();
  const Variables variables = {{"HOME", home.path().string()}};
  EXPECT_EQ(resolve({}, variables).file, "");
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/config.toml") << "[server]\nport = 7";
  EXPECT_EQ(resolve({}, variables).settings.serve.http.port, 7);
  Variables moved = variables;
  moved["XDG_CONFIG_HOME"] = home.path().string();
  EXPECT_EQ(resolve({}, moved).file, "");
  moved["QUARREL_CONFIG"] = file("[server]\nport = 8");
  EXPECT_EQ(resolve({}, moved).settings.serve.http.port, 8);
  moved["QUARREL_CONFIG"] = "";  // none, whatever lies in the usual place
  moved.erase("XDG_CONFIG_HOME");
  EXPECT_EQ(resolve({}, moved).settings.serve.http.port, 8080);
  EXPECT_THROW(resolve({.file = folder + "/absent.toml"}), Error);
}

TEST_F(Settings, WhatAFileGetsWrongIsToldWithItsLine) {
  expect_refused("[server]\nprot = 1", "line 2: there is no setting 'server.prot'; did you mean 'server.port'?");
  expect_refused("\nport = 1", "line 2: there is no setting 'port'; did you mean 'server.port'?");
  expect_refused("[models.\"\"]\npath = \"x\"", "line 1: a model has a name: [models.\"name\"]");
  expect_refused("[servre]\nport = 1", "line 1: there is no setting 'servre'; did you mean 'server'?");
  expect_refused("[server]\nport = 65536", "line 2: 'server.port' must be a whole number from 0 to 65535");
  expect_refused("[server]\nport = 1.5", "line 2: 'server.port' must be a whole number from 0 to 65535");
  expect_refused("[limits]\nidle_time = nan", "line 2: 'limits.idle_time' must be a number from 0.1 to 86400");
  expect_refused("[engine]\nkv = \"f8\"", "line 2: 'engine.kv' must be one of f16, f32");
  expect_refused("[engine]\npin = 1", "line 2: 'engine.pin' must be true or false");
  expect_refused("[server]\nallowed_hosts = [1]", "line 2: 'server.allowed_hosts' must be a list of texts");
  expect_refused("[models.toy]\nkeepalive = 1", "line 2: there is no setting 'keepalive'; did you mean 'keep_alive'?");
  expect_refused("[models]\ntoy = 1", "line 2: there is a table for each model: [models.\"name\"], but 'toy' is none");
  expect_refused("[server]\nhost = \"a\\u0000b\"",
                 "line 2: 'server.host' must be a text of at most 4096 bytes without control characters");
}

TEST_F(Settings, HostileFilesAreRefusedAndNothingElse) {
  for (const std::string& text :
       {std::string(2u << 20, '#'), std::string(100000, '['), "a = " + std::string(5000, '['), std::string("\0\0", 2),
        std::string("\xff\xfe[server]"), std::string("a.b.c.d = 1")}) {
    EXPECT_THROW(resolve({.file = file(text)}), Error) << text.substr(0, 20);
  }
}

TEST_F(Settings, AModelHasItsOwn) {
  const std::string path = file(
      "[engine]\nparallel = 3\ncache_tokens = \"4k\"\n[models.\"a b\"]\npath = \"/x.gguf\"\ncache_tokens = 100\n"
      "keep_alive = 1.5\n[models.c]\nctx = \"2k\"\nparallel = 1\n");
  const SettingsInForce in_force = resolve({.file = path});
  EXPECT_EQ(entry(in_force, "models.\"a b\".cache_tokens").source, path + ", line 6");
  const ServeOptions options = serve_options(in_force.settings);
  EXPECT_EQ(options.service.configured, (std::map<std::string, std::string>{{"a b", "/x.gguf"}}));
  const ModelSettings& first = options.service.model_settings.at("a b");
  EXPECT_EQ(first.load.executor.cache_tokens, 100);
  EXPECT_EQ(first.load.executor.sequences, 3);
  EXPECT_EQ(first.keep_alive, std::chrono::milliseconds(1500));
  const ModelSettings& second = options.service.model_settings.at("c");
  EXPECT_EQ(second.load.executor.cache_tokens, 4096);
  EXPECT_EQ(second.load.executor.context, 2048);
  EXPECT_EQ(second.load.executor.sequences, 1);
  EXPECT_FALSE(second.keep_alive);
}

TEST_F(Settings, ValuesFromTextsAreBoundedToo) {
  const auto refused = [&](const Variables& variables) {
    EXPECT_THROW(resolve({}, variables), Error) << variables.begin()->second;
  };
  for (const char* text : {"-1", "65536", "1e3", "0x10", "80 ", "99999999999999999999", "8080k"}) {
    refused({{"QUARREL_PORT", text}});
  }
  for (const char* text : {"inf", "nan", "1e30", "-1", "5m"}) refused({{"QUARREL_DRAIN", text}});
  refused({{"QUARREL_MEMORY_BUDGET", "8X"}});
  refused({{"QUARREL_PIN", "maybe"}});
  const SettingsInForce in_force = resolve({}, {{"QUARREL_ALLOW_HOST", "a, b,,c"},
                                                {"QUARREL_KEEP_ALIVE", "-5"},
                                                {"QUARREL_CTX", "8k"},
                                                {"QUARREL_MEMORY_BUDGET", "1G"}});
  EXPECT_EQ(in_force.settings.serve.admission.allowed_hosts, (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_EQ(in_force.settings.serve.service.keep_alive, std::chrono::milliseconds(-1));
  EXPECT_EQ(serve_options(in_force.settings).service.load.executor.context, 8192);
  EXPECT_EQ(in_force.settings.machine.memory_budget, "1073741824");
}

TEST_F(Settings, NoNameStandsForTwo) {
  std::set<std::string> seen;
  for (const auto& each : serve_settings()) {
    for (const std::string& name : variables_of(each.info)) EXPECT_TRUE(seen.insert(name).second) << name;
    for (const std::string& name : {each.info.key, long_flag(each.info)}) {
      EXPECT_TRUE(name.empty() || seen.insert(name).second) << name;
    }
  }
}

}  // namespace
}  // namespace quarrel
