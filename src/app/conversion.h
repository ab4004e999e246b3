// What `convert` and `quantize` share: the progress bar, Ctrl-C, the line at the end. Main thread.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "convert/recode.h"
#include "convert/write_model.h"

namespace quarrel {

// Calls `work` with options that show its progress and stop it when Ctrl-C is pressed; gives the exit code.
int run_conversion(const std::function<void(const RecodeOptions&)>& work);

// "model.gguf: qwen3 as Q8_0, 310 tensors, 1.2 GB to 639.4 MB (8.50 bits a weight)".
std::string conversion_summary(const std::filesystem::path& target, const std::string& what,
                               const WrittenModel& written);

// "F32, F16, …", for help texts.
std::string target_type_names();

}  // namespace quarrel
