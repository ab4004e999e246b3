// What storing texts would take, without sending any: texts, tokens and bytes are counted, the time is that of a
// sample. Called by `quarrel embed --dry-run`; one thread, blocks.
#pragma once

#include <cstdint>
#include <functional>

#include "ingest/journal.h"
#include "ingest/model_embedder.h"
#include "ingest/text_source.h"

namespace quarrel {

struct IngestEstimate {
  std::uint64_t texts = 0;
  std::uint64_t stored_before = 0;  // of these, in the store already as the journal says
  std::uint64_t repeated = 0;       // of these, alike
  std::uint64_t tokens = 0;         // of those that would be embedded
  std::uint64_t cut = 0;            // longer than the model's limit
  std::uint64_t bytes = 0;          // that would be sent
  std::uint64_t sample_texts = 0;
  std::uint64_t sample_tokens = 0;
  double sample_seconds = 0.0;
  double seconds = 0.0;  // to embed them all
};

// `journal`: that of the dataset, if there is one; nothing is written to it. `watch` false ends it with
// Error(cancelled).
IngestEstimate estimate_ingest(TextSource& source, ModelEmbedder& embedder, Journal* journal,
                               const std::function<bool(std::uint64_t texts)>& watch);

}  // namespace quarrel
