// Looks at what a client sends before Arrow reads it: a compressed batch of some kilobytes could become gigabytes.
// Given to the server as its memory manager, which Arrow asks where each message's body is to lie. Any thread.
#pragma once

#include <arrow/device.h>

#include <memory>

namespace quarrel::flight {

std::shared_ptr<arrow::MemoryManager> make_message_guard();

}  // namespace quarrel::flight
