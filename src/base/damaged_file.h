// What to tell somebody whose model computes nonsense: the likeliest cause, how to make sure, and what to do. One
// sentence for all who notice it: the engine, vectors, perplexity.
#pragma once

namespace quarrel {

inline constexpr const char* kDamagedFileHint =
    "its file may be damaged: `quarrel list` shows whether it has changed, `quarrel pull` fetches it again";

}  // namespace quarrel
