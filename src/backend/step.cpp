#include "backend/step.h"

namespace quarrel {

StepShape exact_shape(const Step& step) noexcept {
  StepShape shape{.generated_rows = step.generated_rows,
                  .prompt_rows = static_cast<std::int32_t>(step.rows.size()) - step.generated_rows};
  for (const StepOutput& output : step.outputs) {
    ++(output.row < step.generated_rows ? shape.generated_outputs : shape.prompt_outputs);
    shape.tokens |= output.kind == OutputKind::sample || output.kind == OutputKind::score;
    shape.logits |= output.logits;
    shape.vectors |= output.kind == OutputKind::vector;
    shape.pooled |= output.kind == OutputKind::pooled;
  }
  for (const StepSequence& sequence : step.sequences) shape.pooled |= sequence.lane >= 0;
  return shape;
}

}  // namespace quarrel
