// What conversion and quantising share: the types of a model's tensors are chosen, then the file is written, one tensor
// in memory at a time. One thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "base/log.h"
#include "convert/recode.h"
#include "convert/target_type.h"
#include "gguf/writer.h"

namespace quarrel {

// One tensor on its way: `source` knows where its values lie and in what order they are wanted.
struct PlannedTensor {
  std::string name = {};                  // GGUF's
  std::vector<std::uint64_t> shape = {};  // innermost first
  TensorSource source = {};
  QuantType type = QuantType::f32;  // of the result
};

struct WrittenModel {
  std::uint64_t tensors = 0;
  std::uint64_t weights = 0;       // values in all tensors
  std::uint64_t source_bytes = 0;  // of the tensors
  std::uint64_t bytes = 0;         // of the tensors in the result
};

// Gives every matrix the type that `target` wants for it, or one that fits its rows, and says so in the log. What keeps
// its values is left as it was planned.
void choose_types(std::span<PlannedTensor> tensors, const TargetType& target, Log& log);

// Warns where the result would be no smaller than the source although that was rounded before: what is lost does not
// come back with more bits.
void warn_if_nothing_is_gained(std::span<const PlannedTensor> tensors, const TargetType& target, Log& log);

// Puts general.file_type, and the version of the quantised types' layouts.
void put_file_type(GgufWriter& writer, const TargetType& target);

// Adds the tensors to the writer and writes the file: under another name first, so that it is there whole or not at
// all. Throws Error: what the writer and Recoder::recode throw.
WrittenModel write_model(GgufWriter& writer, std::span<const PlannedTensor> tensors,
                         const std::filesystem::path& target, const RecodeOptions& options);

// Throws Error(usage) for a target that is a folder, one of `inputs`, or a file that may not be overwritten.
void check_target(const std::filesystem::path& target, bool overwrite, std::span<const std::filesystem::path> inputs);

}  // namespace quarrel
