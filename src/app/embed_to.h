// `quarrel embed --to`: texts through a model into a dataset of Longbow, with a journal, so that a run that was ended
// goes on where it stopped. Used on the main thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "app/longbow_flags.h"
#include "app/terminal.h"
#include "base/log.h"
#include "session/embedding.h"
#include "session/loaded_model.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace quarrel {

struct EmbedToCommand {
  std::string address;  // empty: vectors go to a file
  std::string input = "auto";
  std::optional<std::int32_t> chunk;  // tokens
  std::int32_t overlap = 32;
  std::vector<std::string> columns;
  std::string prefix;
  std::int32_t batch = 1024;  // rows
  std::string journal;
  bool append = false;
  bool skip_bad = false;
  bool dry_run = false;
  LongbowFlags longbow;
};

// The flags, of which all but `--to` and `--prefix` need `--to`. Gives the option `--to`.
CLI::Option* add_embed_to_flags(CLI::App& command, EmbedToCommand& options);

// `file`: what the texts are read from, a folder included; `load` gives the model.
int run_embed_to(const EmbedToCommand& command, const std::string& file, const EmbeddingOptions& options,
                 const std::function<std::shared_ptr<LoadedModel>()>& load, Log& log, const Interrupts& interrupts);

}  // namespace quarrel
