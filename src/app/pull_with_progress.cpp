#include "app/pull_with_progress.h"

#include <stop_token>

#include "app/progress_bar.h"
#include "app/terminal.h"
#include "base/error.h"
#include "gguf/pull.h"

namespace quarrel {

std::filesystem::path pull_with_progress(const std::string& name, const std::filesystem::path& store) {
  if (store.empty()) fail(ErrorKind::usage, "there is no place for models: set QUARREL_MODELS to a folder");
  Interrupts interrupts;
  ProgressBar bar;
  std::stop_source stop;
  PullOptions options;
  options.stop = stop.get_token();
  options.progress = [&](PullPhase phase, std::uint64_t done, std::uint64_t total) {
    if (interrupts.requested().load(std::memory_order_relaxed)) stop.request_stop();
    bar.show(phase_name(phase), done, total);
  };
  return pull(name, store, options);
}

}  // namespace quarrel
