// Errors of the C interface.
#include "api/c_support.h"

#include <array>
#include <new>

namespace quarrel::api {
namespace {

quarrel_status status_of(ErrorKind kind) noexcept {
  switch (kind) {
    case ErrorKind::usage: return QUARREL_USAGE;
    case ErrorKind::not_found: return QUARREL_NOT_FOUND;
    case ErrorKind::bad_file: return QUARREL_BAD_FILE;
    case ErrorKind::bad_input: return QUARREL_BAD_INPUT;
    case ErrorKind::unsupported: return QUARREL_UNSUPPORTED;
    case ErrorKind::out_of_memory: return QUARREL_OUT_OF_MEMORY;
    case ErrorKind::io: return QUARREL_IO;
    case ErrorKind::cancelled: return QUARREL_CANCELLED;
    case ErrorKind::busy: return QUARREL_BUSY;
    case ErrorKind::failed: return QUARREL_FAILED;
    case ErrorKind::internal: return QUARREL_INTERNAL;
  }
  return QUARREL_INTERNAL;
}

quarrel_status report_and_give(quarrel_error* error, quarrel_status status, std::string_view message) noexcept {
  report(error, status, message);
  return status;
}

}  // namespace

void report(quarrel_error* error, quarrel_status status, std::string_view message) noexcept {
  if (error == nullptr) return;
  const std::size_t size = std::min<std::size_t>(error->size, sizeof(quarrel_error));
  constexpr std::size_t kMessage = offsetof(quarrel_error, message);
  if (size < kMessage) return;
  error->status = status;
  if (size == kMessage) return;
  std::size_t length = std::min(message.size(), size - kMessage - 1);
  // Not within a character.
  if (length < message.size()) {
    while (length > 0 && (static_cast<unsigned char>(message[length]) & 0xc0u) == 0x80u) --length;
  }
  std::copy_n(message.begin(), length, error->message);
  error->message[length] = '\0';
}

quarrel_status status_of_exception(quarrel_error* error) noexcept {
  try {
    throw;
  } catch (const TooSmall& small) {
    std::array<char, 96> text{};
    const auto end = fmt::format_to_n(text.data(), text.size(), "the array holds {}, but {} are needed", small.capacity,
                                      small.needed);
    return report_and_give(error, QUARREL_TOO_SMALL, {text.data(), std::min(end.size, text.size())});
  } catch (const OtherStatus& other) {
    return report_and_give(error, other.status, other.message);
  } catch (const Error& failure) {
    return report_and_give(error, status_of(failure.kind()), failure.what());
  } catch (const std::bad_alloc&) {
    return report_and_give(error, QUARREL_OUT_OF_MEMORY, "there is not enough memory");
  } catch (const std::exception& failure) {
    return report_and_give(error, QUARREL_INTERNAL, failure.what());
  } catch (...) {
    return report_and_give(error, QUARREL_INTERNAL, "a callback threw something");
  }
}

}  // namespace quarrel::api
