// Makes a GGUF file of another whose matrices have another type. Any type is read, those with an encoder are written;
// vectors, norms and the like, and all metadata, stay as they are. Called by `quarrel quantize`. One thread at a time
// calls; the encoding uses all cores.
#pragma once

#include <filesystem>

#include "base/log.h"
#include "convert/recode.h"
#include "convert/target_type.h"
#include "convert/write_model.h"
#include "gguf/file.h"

namespace quarrel {

struct QuantizeOptions {
  bool overwrite = false;
  RecodeOptions recode = {};
};

// A split model becomes one file. Throws Error: usage for a target that may not be written, bad_file for a model
// without tensors, bad_input for weights that are not finite, io, cancelled. The target is there whole or not at all.
WrittenModel quantize_file(const GgufFile& file, const std::filesystem::path& target, const TargetType& type,
                           const QuantizeOptions& options, Log& log);

}  // namespace quarrel
