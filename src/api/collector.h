// What a reader sees of a generation: the session's events as the public header has them, less those of answers that
// the reader has ended, and all of it as results. One thread reads; `end` and `end_all` may be called by any.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "quarrel/generate.h"
#include "session/generation_stream.h"

namespace quarrel::api {

class Collector {
 public:
  explicit Collector(std::int32_t answers);

  // None: it is of an answer that the reader has ended, and not its end.
  std::optional<Event> take(GenerationEvent& event);
  bool finished() const noexcept { return open_ == 0; }  // every answer has

  void end(std::size_t answer) noexcept;
  void end_all() noexcept;

  std::vector<GenerateResult> results(const Usage& usage, std::uint64_t seed) const;

 private:
  GenerationResult collected_;
  std::deque<std::atomic<bool>> ended_;  // by the reader
  std::size_t open_;
};

Piece piece_of(const Event& event) noexcept;

}  // namespace quarrel::api
