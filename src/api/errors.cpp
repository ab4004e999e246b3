#include "api/errors.h"

namespace quarrel::api {

ErrorKind kind_of(quarrel::ErrorKind kind) noexcept {
  switch (kind) {
    case quarrel::ErrorKind::usage: return ErrorKind::usage;
    case quarrel::ErrorKind::not_found: return ErrorKind::not_found;
    case quarrel::ErrorKind::bad_file: return ErrorKind::bad_file;
    case quarrel::ErrorKind::bad_input: return ErrorKind::bad_input;
    case quarrel::ErrorKind::unsupported: return ErrorKind::unsupported;
    case quarrel::ErrorKind::out_of_memory: return ErrorKind::out_of_memory;
    case quarrel::ErrorKind::io: return ErrorKind::io;
    case quarrel::ErrorKind::busy: return ErrorKind::busy;
    case quarrel::ErrorKind::cancelled: return ErrorKind::cancelled;
    case quarrel::ErrorKind::device_lost: return ErrorKind::failed;
    case quarrel::ErrorKind::internal: return ErrorKind::internal;
  }
  return ErrorKind::internal;
}

}  // namespace quarrel::api
