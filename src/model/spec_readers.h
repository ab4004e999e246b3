// Pieces that the architectures of architectures.cpp are read from: each turns some hyper-parameters of a file into one
// part of a ModelSpec, with bounds, and knows no architecture by name.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "model/hyper.h"
#include "model/spec.h"

namespace quarrel {

inline constexpr std::int32_t kMaxLayers = 4096;
inline constexpr std::int32_t kMaxWidth = 1 << 20;
inline constexpr std::int32_t kMaxHeads = 1 << 16;
inline constexpr std::int32_t kMaxContext = 1 << 30;

// What all layers of a file share.
struct LayerReader {
  const HyperParameters& hyper;
  std::int32_t layers = 0;
  std::int32_t width = 0;
  NormKind norm_kind = NormKind::rms;
  float epsilon = 0.0f;
  RopeKind rope_kind = RopeKind::interleaved;

  NormSpec norm(std::string tensor) const;
  AttentionSpec attention(std::int32_t layer) const;
  FfnSpec ffn(std::int32_t layer) const;
  MoeSpec experts(std::int32_t layer) const;
  MambaSpec mamba(std::int32_t version) const;
  // Experts where the file has some, else a dense feed-forward.
  SublayerFunction ffn_or_experts(std::int32_t layer) const;
};

LayerReader layer_reader(const HyperParameters& hyper, NormKind norm, RopeKind rope);

// The parts of a model that are not layers.
ModelSpec read_model(const HyperParameters& hyper);
RopeSpec read_rope(const HyperParameters& hyper, RopeKind kind, std::int32_t head_dim);
Pooling read_pooling(const HyperParameters& hyper);

// The plain pre-norm decoder that most architectures start from.
ModelSpec read_decoder(const HyperParameters& hyper, RopeKind rope, NormKind norm = NormKind::rms);

// The first of a layer's names that the file has a tensor for ("NAME.weight" in layer 0), else the first of all.
std::string present_tensor(const HyperParameters& hyper, std::initializer_list<std::string_view> names);

}  // namespace quarrel
