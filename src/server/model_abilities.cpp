#include "server/model_abilities.h"

#include "base/error.h"
#include "model/architectures.h"
#include "model/hyper.h"
#include "model/spec_readers.h"

namespace quarrel {

ModelAbilities read_abilities(const GgufFile& file) {
  try {
    const Pooling pooling = read_pooling(HyperParameters(file));
    const ModelSpec spec = read_spec(file);
    ModelAbilities abilities{.trained_context = spec.context_length};
    if (spec.has_head) abilities.capabilities.push_back("completion");
    if (pooling != Pooling::rank && (pooling != Pooling::none || !spec.has_head)) {
      abilities.capabilities.push_back("embedding");
    }
    return abilities;
  } catch (const Error&) {
    return {};
  }
}

ModelAbilities read_abilities(const std::filesystem::path& path) {
  try {
    return read_abilities(GgufFile::open(path));
  } catch (const Error&) {
    return {};
  }
}

}  // namespace quarrel
