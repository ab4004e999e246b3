// A model of one product: the next token after t is where column t of the head is largest: here (5 t + 1) mod 12. The
// least that steps can be tried with.
#pragma once

#include "ops/harness.h"

namespace quarrel::test {

inline constexpr std::int32_t kVocabulary = 12;

struct ChainFixture {
  OpFixture fixture;
  Activation x, selected;
  Weight table, weight;

  explicit ChainFixture(const DeviceUnderTest& device) : fixture(device) {
    Floats identity(kVocabulary, 32);
    Floats next(kVocabulary, 32);
    for (std::size_t t = 0; t < kVocabulary; ++t) {
      identity.at(t, t) = 1.0f;
      next.at((5 * t + 1) % kVocabulary, t) = 3.0f;
    }
    x = fixture.input(identity);
    selected = fixture.activation(32, RowSet::outputs);
    table = fixture.matrix(identity, WeightRole::embedding);
    weight = fixture.matrix(next);
  }
  void ops(Backend& backend) const {
    backend.select_rows({.in = x, .out = selected});
    backend.head({.in = selected, .weight = weight});
    backend.sample({.slice = 0, .vocabulary = kVocabulary});
  }
  Ticket submit(const StepPlan& plan) {
    return fixture.submit(plan, [this](Backend& b, const StepShape&) { ops(b); });
  }
  StepResults run(const StepPlan& plan) {
    return fixture.run(plan, [&](Backend& b) { ops(b); });
  }
};

inline std::int32_t next_in_chain(std::int32_t token) { return (5 * token + 1) % kVocabulary; }

}  // namespace quarrel::test
