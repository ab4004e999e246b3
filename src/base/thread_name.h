// What a thread is called in `top -H`, a debugger, and the load generator's table of processor time.
#pragma once

#include <pthread.h>

namespace quarrel {

// Of the thread that calls; 15 letters at most.
inline void name_thread(const char* name) noexcept { ::pthread_setname_np(::pthread_self(), name); }

}  // namespace quarrel
