// How commands reach Longbow: the flags that all of them have, and what they mean. One thread.
#pragma once

#include <memory>
#include <string>

#include "flight/longbow.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace quarrel {

struct LongbowFlags {
  std::string token_file = {};
  std::string authorities = {};  // PEM files
  std::string certificate = {};
  std::string key = {};
};

// `address`: the option that names a store, without which they mean nothing; null: the command always has one.
void add_longbow_flags(CLI::App& command, LongbowFlags& flags, CLI::Option* address = nullptr);

// The files' contents. Throws Error of those that cannot be read.
LongbowOptions longbow_options(const LongbowFlags& flags);
// Does not connect yet. Throws what connect_longbow throws, and Error of files that cannot be read.
std::unique_ptr<LongbowClient> open_longbow(const LongbowAddress& address, const LongbowFlags& flags);

}  // namespace quarrel
