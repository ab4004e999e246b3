// What to tell somebody whose model computes nonsense: the likeliest cause, how to make sure, and what to do. One
// sentence for all who notice it: the engine, vectors, perplexity.
#pragma once

namespace quarrel {

inline constexpr const char* kDamagedFileHint =
    "its file may be damaged: `quarrel list --verify` checks stored files, `quarrel pull NAME` fetches one again";

}  // namespace quarrel
