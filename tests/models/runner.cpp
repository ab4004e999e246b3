#include "models/runner.h"

#include <sstream>

#include "backend/create.h"

namespace quarrel::test {

std::vector<NamedDevice> all_devices() {
  std::vector<NamedDevice> devices;
  devices.push_back({.name = "reference", .exact = true, .device = make_device({.backend = "reference"})});
  std::istringstream levels(available_isa_levels());
  for (std::string level; levels >> level;) {
    devices.push_back(
        {.name = "cpu-" + level, .exact = false, .device = make_device({.backend = "cpu", .isa = level})});
  }
  return devices;
}

std::vector<float> logits_of(const std::filesystem::path& file, Device& device, std::span<const TokenId> tokens,
                             const RunOptions& options) {
  Executor executor(GgufFile::open(file), device,
                    {.context = static_cast<std::int32_t>(tokens.size()),
                     .batch_rows = static_cast<std::int32_t>(tokens.size()),
                     .kv_type = options.kv_type,
                     .activations = options.activations,
                     .repack = options.repack});
  const auto vocabulary = static_cast<std::size_t>(executor.spec().vocabulary);
  std::vector<float> logits(tokens.size() * vocabulary);
  std::vector<Want> wants;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    wants.push_back({.index = static_cast<std::int32_t>(i), .logits = logits.data() + i * vocabulary});
  }
  Sequences texts(executor);
  TestSequence sequence = texts.make();
  texts.run_chunked({.sequence = &sequence, .tokens = tokens, .row_class = options.row_class, .wants = wants},
                    options.chunk);
  return logits;
}

}  // namespace quarrel::test
