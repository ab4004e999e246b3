// Writes a toy model to a file, for tests that run the program: make_toy NAME FILE [CONTEXT [SEED]]. NAME is
// "chat", "channels", "embed", "rank", "chat-" before one of toy_names(), or one of those.

#include <cstdio>
#include <exception>
#include <string>
#include <string_view>

#include "base/error.h"
#include "support/golden.h"
#include "support/toy_model.h"

int main(int argc, char** argv) {
  using namespace quarrel::test;
  try {
    if (argc < 3 || argc > 5) quarrel::fail(quarrel::ErrorKind::usage, "make_toy NAME FILE [CONTEXT [SEED]]");
    ToyOptions options;
    if (argc >= 4) options.context = static_cast<std::uint32_t>(std::stoul(argv[3]));
    if (argc >= 5) options.seed = std::stoull(argv[4]);
    const std::string_view name = argv[1];
    constexpr std::string_view kChatting = "chat-";
    options.channels = name == "channels";
    options.ranks = name == "rank";
    save_bytes(argv[2], name == "chat" || name == "channels" ? make_toy_chat(options)
                        : name.starts_with(kChatting)        ? make_toy_chat(options, name.substr(kChatting.size()))
                        : name == "embed" || options.ranks   ? make_toy_embed(options)
                                                             : make_toy(name, options));
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}
