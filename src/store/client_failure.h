// What went wrong when the package client failed, in a sentence: its own output is pages long and speaks of things that
// a user of this program has no business with. Pure function.
#pragma once

#include <string>
#include <string_view>

namespace quarrel {

// `output` is what pip or the unpacker wrote before it failed. Without a known cause: its last line.
std::string client_failure(std::string_view output);

}  // namespace quarrel
