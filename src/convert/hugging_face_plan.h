// Which tensors of a folder go into the GGUF file, under which names, in which shapes and in which order of rows. Pure
// functions: any thread may call.
#pragma once

#include <vector>

#include "convert/hugging_face_config.h"
#include "convert/safetensors.h"
#include "convert/write_model.h"

namespace quarrel {

// Every tensor of the family's table, in its order. Throws Error(bad_file) for one that is missing or has no place, and
// Error(unsupported) for one of a dtype that is not F32, F16 or BF16. Their types are left at F32. `model` must outlive
// the result.
std::vector<PlannedTensor> plan_tensors(const HuggingFaceConfig& config, const SafetensorsModel& model);

}  // namespace quarrel
