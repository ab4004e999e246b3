#include "app/pull_with_progress.h"

#include <fmt/format.h>

#include <stop_token>

#include "app/progress_bar.h"
#include "app/terminal.h"
#include "base/error.h"
#include "base/log.h"
#include "base/printable.h"
#include "convert/convert.h"
#include "store/pull.h"

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
  options.on_damaged = [](const std::filesystem::path& file) {
    write_error(fmt::format("'{}' is damaged or was changed: fetching it again.\n", printable(file.string(), 512)));
  };
  MemoryLog unsaid;  // what is worth saying of these models was said before they came into the table
  options.convert = [&](const std::filesystem::path& folder, const std::filesystem::path& target,
                        const std::string& model, const PullOptions::Progress& progress) {
    const ConvertOptions conversion{
        .name = model, .type = &find_target_type("F32"), .recode = {.progress = progress, .stop = options.stop}};
    convert_folder(folder, target, conversion, unsaid);
  };
  return pull(name, store, options);
}

}  // namespace quarrel
