#include "app/conversion.h"

#include <fmt/ranges.h>

#include <stop_token>
#include <vector>

#include "app/progress_bar.h"
#include "app/terminal.h"
#include "app/workbench.h"
#include "base/printable.h"
#include "convert/target_type.h"

namespace quarrel {

int run_conversion(const std::function<void(const RecodeOptions&)>& work) {
  return run_interruptible([&](const Interrupts& interrupts) {
    ProgressBar bar;
    std::stop_source stop;
    RecodeOptions options;
    options.stop = stop.get_token();
    options.progress = [&](std::uint64_t done, std::uint64_t total) {
      if (interrupts.requested().load(std::memory_order_relaxed)) stop.request_stop();
      bar.show("write", done, total);
    };
    work(options);
    return 0;
  });
}

std::string conversion_summary(const std::filesystem::path& target, const std::string& what,
                               const WrittenModel& written) {
  const double bits = 8.0 * static_cast<double>(written.bytes) / static_cast<double>(written.weights);
  return fmt::format("{}: {}, {} tensors, {} to {} ({:.2f} bits per weight)\n", printable(target.string(), 512), what,
                     written.tensors, human_bytes(written.source_bytes), human_bytes(written.bytes), bits);
}

std::string target_type_names() {
  std::vector<std::string_view> names;
  names.reserve(target_types().size());
  for (const TargetType& type : target_types()) names.push_back(type.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace quarrel
