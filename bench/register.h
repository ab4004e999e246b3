// What a benchmark that depends on the machine gives bench/main.cpp to call: its cases, one after the other.
#pragma once

namespace quarrel {

void register_all();

}  // namespace quarrel
