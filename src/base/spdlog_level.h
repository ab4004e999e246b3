// Our levels of a log as spdlog has them: for the logs that write through it.
#pragma once

#include <spdlog/common.h>

#include "base/log.h"

namespace quarrel {

inline spdlog::level::level_enum spdlog_level(LogLevel level) noexcept {
  switch (level) {
    case LogLevel::debug: return spdlog::level::debug;
    case LogLevel::info: return spdlog::level::info;
    case LogLevel::warning: return spdlog::level::warn;
    case LogLevel::error: return spdlog::level::err;
  }
  return spdlog::level::err;
}

}  // namespace quarrel
