// Keys: their text, the file, what a running server takes for one.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

#include "base/error.h"
#include "server/key_ring.h"
#include "support/temp_dir.h"

namespace quarrel {
namespace {

namespace fs = std::filesystem;
using std::chrono::hours;
using std::chrono::seconds;

constexpr WallTime kNow{seconds(1'800'000'000)};

ErrorKind kind_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.kind();
  }
  ADD_FAILURE() << "nothing was thrown";
  return ErrorKind::internal;
}

std::string text_of(const fs::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

unsigned mode_of(const fs::path& path) {
  struct stat status{};
  EXPECT_EQ(::stat(path.c_str(), &status), 0);
  return status.st_mode & 0777u;
}

TEST(KeyRecord, AKeyHasItsShapeAndItsSecretIsKnownByAHashAlone) {
  const NewSecret made = make_secret(kNow);
  EXPECT_EQ(made.key.size(), 56u);
  EXPECT_TRUE(made.key.starts_with("qk_"));
  const auto parts = split_key(made.key);
  ASSERT_TRUE(parts);
  EXPECT_EQ(parts->id, made.stored.id);
  EXPECT_TRUE(secret_is_right(made.stored, parts->secret));
  for (std::size_t i = 0; i < parts->secret.size(); ++i) {
    std::string other(parts->secret);
    other[i] = other[i] == 'a' ? 'b' : 'a';
    EXPECT_FALSE(secret_is_right(made.stored, other));
  }
  EXPECT_FALSE(secret_is_right(made.stored, ""));
  EXPECT_EQ(made.stored.hash.find(parts->secret), std::string::npos);
  std::set<std::string> seen;
  for (int i = 0; i < 1000; ++i) {
    const NewSecret other = make_secret(kNow);
    EXPECT_TRUE(seen.insert(other.key).second && seen.insert(other.stored.salt).second);
  }
  for (const char* text : {"", "qk_", "sk-abc", "qk_aaaaaaaaaabbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb-"}) {
    EXPECT_FALSE(split_key(text)) << text;
  }
  EXPECT_FALSE(split_key(made.key + "a"));
}

TEST(KeyRecord, TheFilesTextIsReadAsItWasWritten) {
  KeyRecord key{.name = "ci",
                .role = Role::admin,
                .models = {"a", "b:1"},
                .priority = Priority::batch,
                .limits = {.requests_per_minute = 5, .tokens_per_minute = 6, .concurrency = 7},
                .created = kNow,
                .expires = kNow + hours(1),
                .number = random_number(),
                .cache_salt = random_number()};
  key.secrets = {make_secret(kNow).stored, make_secret(kNow).stored};
  key.secrets[0].expires = kNow + seconds(5);
  const std::string text = write_keys({key});
  const std::vector<KeyRecord> read = read_keys(text);
  ASSERT_EQ(read.size(), 1u);
  EXPECT_EQ(write_keys(read), text);
  EXPECT_EQ(read[0].limits, key.limits);
  EXPECT_EQ(read[0].number, key.number);
  EXPECT_EQ(read[0].secrets[0].expires, key.secrets[0].expires);
  EXPECT_EQ(read[0].priority, Priority::batch);
}

// Every byte of a good text is changed or left out, and nothing happens but an Error.
TEST(KeyRecord, ADamagedTextIsRefused) {
  KeyRecord key{.name = "ci", .created = kNow, .number = 1, .cache_salt = 2};
  key.secrets.push_back(make_secret(kNow).stored);
  const std::string text = write_keys({key});
  for (std::size_t i = 0; i < text.size(); ++i) {
    for (const std::string& damaged :
         {text.substr(0, i), std::string(text).erase(i, 1), std::string(text).replace(i, 1, "{"),
          std::string(text).replace(i, 1, "9"), std::string(text).replace(i, 1, "\"")}) {
      try {
        static_cast<void>(read_keys(damaged));
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::bad_file) << damaged;
        EXPECT_EQ(std::string(error.what()).find(key.secrets[0].hash), std::string::npos);
      }
    }
  }
  for (const char* bad : {"", "[]", "{}", R"({"version":2,"keys":[]})", R"({"version":1,"keys":{}})",
                          R"({"version":1,"keys":[1]})", R"({"version":1,"keys":[{"name":"a"}]})"}) {
    EXPECT_EQ(kind_of([&] { static_cast<void>(read_keys(bad)); }), ErrorKind::bad_file) << bad;
  }
  EXPECT_EQ(kind_of([&] { static_cast<void>(read_keys(std::string(1000, '['))); }), ErrorKind::bad_file);
  const std::string twice = write_keys({key, key});
  EXPECT_EQ(kind_of([&] { static_cast<void>(read_keys(twice)); }), ErrorKind::bad_file);
}

class KeyFiles : public ::testing::Test {
 protected:
  KeyRing ring(std::string single = {}) {
    return {{.file = file,
             .single_key = std::move(single),
             .wall_time = [this] { return wall; },
             .now = [this] { return now; }},
            log};
  }
  std::string create(const std::string& name, KeyWishes wishes = {}) {
    wishes.name = name;
    return store.create(wishes, wall).key;
  }

  test::TempDir folder;
  fs::path file = folder.path() / "sub" / "keys.json";
  KeyStore store{file};
  MemoryLog log;
  WallTime wall = kNow;
  Clock::time_point now = Clock::now();
};

TEST_F(KeyFiles, TheFileIsPrivateAndHoldsNoKey) {
  const std::string key = create("laptop");
  EXPECT_EQ(mode_of(file), 0600u);
  EXPECT_EQ(mode_of(file.parent_path()), 0700u);
  EXPECT_EQ(text_of(file).find(key.substr(13)), std::string::npos);
  EXPECT_EQ(text_of(file).find("qk_"), std::string::npos);
  for (const unsigned mode : {0640u, 0604u, 0620u, 0602u}) {
    ASSERT_EQ(::chmod(file.c_str(), mode), 0);
    EXPECT_EQ(kind_of([&] { store.list(); }), ErrorKind::bad_file) << mode;
    EXPECT_EQ(kind_of([&] { create("other"); }), ErrorKind::bad_file) << mode;
  }
}

TEST_F(KeyFiles, NamesAreTakenOnceAndFoundAgain) {
  create("a");
  EXPECT_EQ(kind_of([&] { create("a"); }), ErrorKind::usage);
  for (const std::string& name :
       std::vector<std::string>{"", "a b", "a/b", "ä", std::string(65, 'a'), make_secret(kNow).key}) {
    EXPECT_EQ(kind_of([&] { create(name); }), ErrorKind::usage) << name;
  }
  EXPECT_EQ(kind_of([&] { store.revoke("b", wall); }), ErrorKind::not_found);
  EXPECT_EQ(kind_of([&] { store.rotate("b", hours(1), wall); }), ErrorKind::not_found);
  const KeyRecord first = store.list()[0];
  store.revoke("a", wall);
  EXPECT_EQ(kind_of([&] { store.rotate("a", hours(1), wall); }), ErrorKind::usage);
  create("a");
  const std::vector<KeyRecord> keys = store.list();
  ASSERT_EQ(keys.size(), 1u);
  EXPECT_NE(keys[0].number, first.number);
  EXPECT_NE(keys[0].cache_salt, first.cache_salt);
}

TEST_F(KeyFiles, ChangesAtOnceLoseNone) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      for (int k = 0; k < 5; ++k) create(fmt::format("key-{}-{}", i, k));
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(store.list().size(), 40u);
}

TEST_F(KeyFiles, WhoIsWho) {
  const std::string key = create("ci", {.role = Role::admin, .models = {"m"}, .limits = {.requests_per_minute = 3}});
  const std::string other = create("other");
  KeyRing keys = ring();
  EXPECT_TRUE(keys.has_keys());
  const KeyRing::Result right = keys.check(key);
  ASSERT_EQ(right.verdict, KeyRing::Verdict::right);
  EXPECT_EQ(right.caller->name, "ci");
  EXPECT_EQ(right.caller->role, Role::admin);
  EXPECT_EQ(right.caller->limits.requests_per_minute, 3);
  EXPECT_TRUE(right.caller->may_use("m") && right.caller->may_use("m:latest"));
  EXPECT_FALSE(right.caller->may_use("n"));
  const KeyRing::Result second = keys.check(other);
  EXPECT_NE(second.caller->key, right.caller->key);
  EXPECT_NE(second.caller->salt, right.caller->salt);
  // The id of one with the secret of the other, and what comes near.
  for (const std::string& wrong : {key.substr(0, 13) + other.substr(13), key + " ", " " + key, key.substr(3),
                                   std::string(), std::string("qk_"), make_secret(wall).key}) {
    EXPECT_EQ(keys.check(wrong).verdict, KeyRing::Verdict::wrong) << wrong;
    EXPECT_EQ(keys.check(wrong).caller, nullptr);
  }
}

// However near a guess comes, it costs the same: which key is compared with is no secret, and how it is compared does
// not depend on where the first difference is.
TEST_F(KeyFiles, TheSameIsComparedForEveryKey) {
  using Compared = std::vector<std::pair<std::size_t, std::size_t>>;  // bytes of salt and of secret
  const std::string good = create("good"), revoked = create("revoked"), brief = create("brief", {.lifetime = hours(1)});
  store.revoke("revoked", wall);
  wall += hours(1);
  const auto changed = [](std::string key, std::size_t place) {
    key[place] = key[place] == 'a' ? 'b' : 'a';
    return key;
  };
  const std::string unknown = make_secret(wall).key;
  for (const std::string& single : {std::string(), std::string("a key of the server's own")}) {
    Compared compared;
    KeyRing keys({.file = file,
                  .single_key = single,
                  .wall_time = [this] { return wall; },
                  .now = [this] { return now; },
                  .compare =
                      [&](const KeySecret& stored, std::string_view secret) {
                        compared.emplace_back(stored.salt.size(), secret.size());
                        return secret_is_right(stored, secret);
                      }},
                 log);
    EXPECT_EQ(keys.check(good).verdict, KeyRing::Verdict::right);
    const Compared wanted = compared;
    EXPECT_EQ(wanted.size(), single.empty() ? 1u : 2u);
    for (const std::string& key :
         {changed(good, 13), changed(good, good.size() - 1), changed(good, 3), unknown, revoked, brief,
          unknown.substr(0, 13) + good.substr(13), good.substr(0, 13) + unknown.substr(13)}) {
      compared.clear();
      EXPECT_NE(keys.check(key).verdict, KeyRing::Verdict::right) << key;
      EXPECT_EQ(compared, wanted) << key;
    }
  }
}

TEST_F(KeyFiles, AKeyEndsByItselfAndByBeingRevoked) {
  const std::string brief = create("brief", {.lifetime = hours(1)});
  const std::string lasting = create("lasting");
  KeyRing keys = ring();
  EXPECT_EQ(keys.check(brief).verdict, KeyRing::Verdict::right);
  wall += hours(1);
  EXPECT_EQ(keys.check(brief).verdict, KeyRing::Verdict::expired);
  EXPECT_EQ(keys.check(lasting).verdict, KeyRing::Verdict::right);
  store.revoke("lasting", wall);
  EXPECT_EQ(keys.check(lasting).verdict, KeyRing::Verdict::right) << "it looks once a second";
  now += seconds(1);
  EXPECT_EQ(keys.check(lasting).verdict, KeyRing::Verdict::revoked);
  EXPECT_TRUE(keys.has_keys()) << "no good key is left, and nothing is open";
}

TEST_F(KeyFiles, RotationLeavesTheOldKeyGoodForAWhile) {
  const std::string old = create("ci");
  KeyRing keys = ring();
  const std::string fresh = store.rotate("ci", hours(2), wall).key;
  now += seconds(1);
  EXPECT_EQ(keys.check(old).verdict, KeyRing::Verdict::right);
  EXPECT_EQ(keys.check(fresh).verdict, KeyRing::Verdict::right);
  EXPECT_EQ(keys.check(old).caller->key, keys.check(fresh).caller->key) << "its limits and its cache stay";
  EXPECT_EQ(keys.check(old).caller->salt, keys.check(fresh).caller->salt);
  wall += hours(2);
  EXPECT_EQ(keys.check(old).verdict, KeyRing::Verdict::expired);
  EXPECT_EQ(keys.check(fresh).verdict, KeyRing::Verdict::right);
  for (int i = 0; i < 20; ++i) store.rotate("ci", hours(2), wall);
  EXPECT_LE(store.list()[0].secrets.size(), 8u);
}

// A connection that stays open asks again whether its caller may.
TEST_F(KeyFiles, WhoCameInMayHaveToGo) {
  KeyRing keys = ring();
  const Caller anonymous, owner{.credential = std::string(KeyRing::kOwner)};
  EXPECT_TRUE(keys.accepts(anonymous));
  const std::string key = create("a"), brief = create("b", {.lifetime = hours(1)});
  now += seconds(1);
  EXPECT_FALSE(keys.accepts(anonymous));
  EXPECT_TRUE(keys.accepts(owner));
  const Caller old = *keys.check(key).caller, second = *keys.check(brief).caller;
  EXPECT_TRUE(keys.accepts(old) && keys.accepts(second));
  const std::string fresh = store.rotate("a", hours(2), wall).key;
  now += seconds(1);
  EXPECT_TRUE(keys.accepts(old));
  wall += hours(2);
  EXPECT_FALSE(keys.accepts(old)) << "its secret was rotated away";
  EXPECT_FALSE(keys.accepts(second)) << "it has expired";
  const Caller rotated = *keys.check(fresh).caller;
  EXPECT_TRUE(keys.accepts(rotated));
  store.revoke("a", wall);
  now += seconds(1);
  EXPECT_FALSE(keys.accepts(rotated));
}

TEST_F(KeyFiles, AFileThatAppearsClosesTheServerAndOneThatGoesDoesNotOpenIt) {
  KeyRing keys = ring();
  EXPECT_FALSE(keys.has_keys());
  const std::string key = create("a");
  now += seconds(1);
  EXPECT_TRUE(keys.has_keys());
  fs::remove(file);
  now += seconds(1);
  EXPECT_TRUE(keys.has_keys());
  EXPECT_EQ(keys.check(key).verdict, KeyRing::Verdict::right);
  EXPECT_EQ(log.lines.back().first, LogLevel::warning);
}

TEST_F(KeyFiles, ABrokenFileKeepsTheKeysFromBefore) {
  const std::string key = create("a");
  KeyRing keys = ring();
  const std::string good = text_of(file);
  std::ofstream(file) << good.substr(0, good.size() / 2);
  for (int i = 0; i < 3; ++i) {
    now += seconds(1);
    EXPECT_EQ(keys.check(key).verdict, KeyRing::Verdict::right);
  }
  EXPECT_EQ(log.lines.size(), 1u) << "it is said once";
  std::ofstream(file) << good;
  const std::string second = create("b");
  now += seconds(1);
  EXPECT_EQ(keys.check(second).verdict, KeyRing::Verdict::right);
  ASSERT_EQ(::chmod(file.c_str(), 0644), 0);
  now += seconds(1);
  EXPECT_EQ(keys.check(second).verdict, KeyRing::Verdict::right);
  EXPECT_NE(log.lines.back().second.find("chmod 600"), std::string::npos);
  EXPECT_EQ(kind_of([&] { ring(); }), ErrorKind::bad_file) << "a server does not start with it";
}

// Something that is wrong for a moment, here that no file can be opened: when it works again the file is as it was.
TEST_F(KeyFiles, AFileThatCouldNotBeReadIsTriedAgain) {
  const std::string first = create("a");
  KeyRing keys = ring();
  const std::string second = create("b");
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{.rlim_cur = 0, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  for (int i = 0; i < 3; ++i) {
    now += seconds(1);
    EXPECT_EQ(keys.check(first).verdict, KeyRing::Verdict::right);
    EXPECT_EQ(keys.check(second).verdict, KeyRing::Verdict::wrong);
  }
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(log.lines.size(), 1u) << "it is said once";
  now += seconds(1);
  EXPECT_EQ(keys.check(second).verdict, KeyRing::Verdict::right);
}

// Nobody is let in because the server could not see whether there are keys.
TEST_F(KeyFiles, WhatCannotBeLookedAtIsNotTakenForNone) {
  create("a");
  const fs::path hidden = folder.path() / std::string(300, 'x') / "keys.json";  // a name that no folder can have
  EXPECT_EQ(kind_of([&] { static_cast<void>(file_stamp(hidden)); }), ErrorKind::io);
  EXPECT_EQ(kind_of([&] { static_cast<void>(KeyStore(hidden).list()); }), ErrorKind::io);
  EXPECT_EQ(kind_of([&] { KeyRing({.file = hidden}, log); }), ErrorKind::io) << "a server does not start";
  EXPECT_FALSE(file_stamp(folder.path() / "none" / "keys.json"));
  EXPECT_FALSE(file_stamp(file / "keys.json"));
}

TEST_F(KeyFiles, AFileThatAppearsAndCannotBeReadClosesTheServer) {
  KeyRing keys = ring();
  EXPECT_FALSE(keys.has_keys());
  fs::create_directories(file.parent_path());
  std::ofstream(file) << "{";
  now += seconds(1);
  EXPECT_TRUE(keys.has_keys());
  EXPECT_FALSE(keys.accepts(Caller{}));
  EXPECT_EQ(log.lines.size(), 1u);
}

TEST_F(KeyFiles, OneKeyOfTheServersOwn) {
  KeyRing keys = ring("open sesame");
  EXPECT_TRUE(keys.has_keys());
  const KeyRing::Result right = keys.check("open sesame");
  ASSERT_EQ(right.verdict, KeyRing::Verdict::right);
  EXPECT_EQ(right.caller->role, Role::admin);
  for (const char* wrong : {"", "open", "open sesame ", "Open sesame"}) {
    EXPECT_EQ(keys.check(wrong).verdict, KeyRing::Verdict::wrong) << wrong;
  }
  const std::string key = create("a");
  now += seconds(1);
  EXPECT_EQ(keys.check(key).verdict, KeyRing::Verdict::right) << "beside those of the file";
}

}  // namespace
}  // namespace quarrel
