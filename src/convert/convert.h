// Makes a GGUF file of a model's folder as Hugging Face's library writes it: config.json, safetensors, a tokenizer.
// Called by `quarrel convert` and by `quarrel pull`. One thread at a time calls; the encoding uses all cores.
#pragma once

#include <filesystem>
#include <string>

#include "base/log.h"
#include "convert/recode.h"
#include "convert/target_type.h"
#include "convert/write_model.h"

namespace quarrel {

struct ConvertOptions {
  std::string name = {};             // general.name; empty: the folder's
  const TargetType* type = nullptr;  // null: the one most of the weights are stored in, so that nothing is lost
  bool overwrite = false;
  RecodeOptions recode = {};
};

struct ConvertedModel {
  std::string architecture = {};
  std::string type = {};
  WrittenModel written = {};
};

// Throws Error: usage for a folder that is none or a target that may not be written, what reading the folder throws,
// cancelled. The target is there whole or not at all.
ConvertedModel convert_folder(const std::filesystem::path& folder, const std::filesystem::path& target,
                              const ConvertOptions& options, Log& log);

}  // namespace quarrel
