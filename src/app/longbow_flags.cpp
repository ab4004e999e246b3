#include "app/longbow_flags.h"

#include <CLI/CLI.hpp>

#include "app/input.h"
#include "app/value_checks.h"
#include "flight/module.h"

namespace quarrel {
namespace {

constexpr std::size_t kLargestSecret = std::size_t{1} << 20;

std::string file_text(const std::string& path) {
  return path.empty() ? std::string() : read_input(path, kLargestSecret);
}

}  // namespace

void add_longbow_flags(CLI::App& command, LongbowFlags& flags, CLI::Option* address) {
  const auto add = [&](const char* name, std::string& file, const char* description) {
    CLI::Option* option = command.add_option(name, file, description)->check(not_empty())->type_name("FILE");
    if (address != nullptr) option->needs(address);
  };
  add("--token-file", flags.token_file, "A file with the token that the store asks for");
  add("--ca-file", flags.authorities, "Certificates that are trusted instead of the system's (longbow+tls)");
  add("--cert-file", flags.certificate, "A client certificate, if the store asks for one");
  add("--key-file", flags.key, "Its key");
}

LongbowOptions longbow_options(const LongbowFlags& flags) {
  LongbowOptions options;
  options.token = file_text(flags.token_file);
  options.token.erase(options.token.find_last_not_of(" \r\n") + 1);
  options.root_certificates = file_text(flags.authorities);
  options.client_certificate = file_text(flags.certificate);
  options.client_key = file_text(flags.key);
  return options;
}

std::unique_ptr<LongbowClient> open_longbow(const LongbowAddress& address, const LongbowFlags& flags) {
  return connect_longbow(address, longbow_options(flags));
}

}  // namespace quarrel
