// When work that an engine was given shows no sign of life for longer than any engine lets anybody wait: that engine
// hangs, and neither ends it nor hears of a cancel.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>

#include "base/clock.h"
#include "session/embedding.h"

namespace quarrel {

// An engine that lives ends by itself what has waited for so long; a little more tells that it does not.
inline std::chrono::milliseconds longest_silence(std::chrono::milliseconds patience) {
  return patience + patience / 10 + std::chrono::seconds(1);
}

// Of an embedding. Whoever holds it sees to it that nobody else uses it meanwhile.
class EmbeddingSilence {
 public:
  // The engine has it now.
  void begin() { heard_ = Clock::now(); }
  // Whether no text of it has ended for so long that none will. Patience of 0 is endless.
  bool is_too_long(const EmbeddingRun& run, Clock::time_point now, std::chrono::milliseconds patience) {
    if (!heard_ || patience.count() == 0) return false;
    if (const std::size_t finished = run.finished(); finished != finished_) {
      finished_ = finished;
      heard_ = now;
    }
    return now - *heard_ > longest_silence(2 * patience);  // a text may wait for its start, and then for its end
  }

 private:
  std::optional<Clock::time_point> heard_;
  std::size_t finished_ = 0;
};

}  // namespace quarrel
