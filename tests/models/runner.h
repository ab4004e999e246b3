// Runs a model file on a device the way the tests need it: all logits of a token sequence, in one piece or in chunks.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/executor.h"
#include "support/sequences.h"

namespace quarrel::test {

struct NamedDevice {
  std::string name;  // "reference", "cpu-avx2" …
  bool exact;        // the reference
  std::unique_ptr<Device> device;
};

// The reference and the CPU at every level this machine has.
std::vector<NamedDevice> all_devices();

struct RunOptions {
  std::int32_t chunk = 0;  // 0: at once
  RowClass row_class = RowClass::prompt;
  KvType kv_type = KvType::f32;
  ActivationPrecision activations = ActivationPrecision::int8_split;
  bool repack = true;
};

// [tokens][vocabulary]
std::vector<float> logits_of(const std::filesystem::path& file, Device& device, std::span<const TokenId> tokens,
                             const RunOptions& options = {});

}  // namespace quarrel::test
