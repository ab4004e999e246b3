#include "backend/ssm_shape.h"

#include "base/as_size.h"
#include "base/error.h"

namespace quarrel {
namespace {

bool well_formed(const SsmOp& op) {
  if (op.inner < 1 || op.state < 1 || op.conv_width < 1) return false;
  if (op.version == 1) return op.dt_rank > 0;
  return op.version == 2 && op.heads > 0 && op.groups > 0 && op.inner % op.heads == 0 && op.heads % op.groups == 0;
}

}  // namespace

SsmShape ssm_shape(const SsmOp& op, std::span<const StateLayer> layers) {
  if (op.state_layer < 0 || as_size(op.state_layer) >= layers.size()) {
    fail(ErrorKind::internal, "layer {} has no state", op.layer);
  }
  if (!well_formed(op)) fail(ErrorKind::internal, "the recurrent layer {} is malformed", op.layer);
  const bool first = op.version == 1;
  SsmShape shape;
  shape.inner = as_size(op.inner);
  shape.state = as_size(op.state);
  shape.heads = first ? shape.inner : as_size(op.heads);
  shape.dim = shape.inner / shape.heads;
  shape.ssm_groups = first ? 1 : as_size(op.groups);
  shape.channels = first ? shape.inner : shape.inner + 2 * shape.ssm_groups * shape.state;
  shape.history = as_size(op.conv_width) - 1;
  shape.z_at = first ? shape.inner : 0;
  shape.x_at = first ? 0 : shape.inner;
  shape.dt_at = shape.x_at + shape.channels;
  const std::size_t width = first ? 2 * shape.inner : shape.dt_at + shape.heads;
  const StateLayer& layer = layers[as_size(op.state_layer)];
  if (as_size(op.in.width) < width || as_size(op.out.width) < shape.inner ||
      static_cast<std::size_t>(layer.conv_values) != shape.history * shape.channels ||
      static_cast<std::size_t>(layer.scan_values) != shape.inner * shape.state) {
    fail(ErrorKind::internal, "the recurrent layer {} does not fit its input, output or state", op.layer);
  }
  if (first && (as_size(op.x_proj.rows) != as_size(op.dt_rank) + 2 * shape.state || op.x_proj.columns != op.inner ||
                op.dt_proj.columns != op.dt_rank || op.dt_proj.rows != op.inner)) {
    fail(ErrorKind::internal, "the projections of the recurrent layer {} do not fit", op.layer);
  }
  return shape;
}

}  // namespace quarrel
