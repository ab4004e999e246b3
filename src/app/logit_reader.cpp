#include "app/logit_reader.h"

#include <algorithm>

namespace quarrel {

LogitReader::LogitReader(Executor& executor, std::span<const TokenId> tokens, RowClass row_class, std::int32_t chunk)
    : executor_(executor),
      tokens_(tokens),
      row_class_(row_class),
      chunk_(static_cast<std::size_t>(std::clamp(chunk, 1, executor.batch_rows()))),
      sequence_(executor.make_sequence()) {
  logits_.resize(std::min(chunk_, tokens.size()) * static_cast<std::size_t>(executor.spec().vocabulary));
}

LogitReader::~LogitReader() { executor_.truncate(sequence_, 0); }

std::span<const float> LogitReader::next() {
  const auto vocabulary = static_cast<std::size_t>(executor_.spec().vocabulary);
  const std::span<const TokenId> tokens = tokens_.subspan(read_, std::min(chunk_, tokens_.size() - read_));
  if (tokens.empty()) return {};
  std::vector<Want> wants;
  wants.reserve(tokens.size());
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    wants.push_back({.index = static_cast<std::int32_t>(i), .logits = logits_.data() + i * vocabulary});
  }
  const Feed feed{.sequence = &sequence_, .tokens = tokens, .row_class = row_class_, .wants = wants};
  executor_.run({&feed, 1});
  read_ += tokens.size();
  return {logits_.data(), tokens.size() * vocabulary};
}

}  // namespace quarrel
