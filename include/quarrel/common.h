// What the other public headers stand on: tokens, errors, the version. Include quarrel.h, which has all of them.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

#if defined(__GNUC__)
#define QUARREL_API __attribute__((visibility("default")))
#else
#define QUARREL_API
#endif

namespace quarrel::api {

using Token = std::int32_t;
inline constexpr Token kNoToken = -1;

enum class ErrorKind {
  usage,          // the call is malformed
  not_found,      // a file or a model that is not there
  bad_file,       // a file that is damaged
  bad_input,      // text, tokens, messages or parameters that cannot be used
  unsupported,    // well-formed, but not something this model or this build can do
  out_of_memory,  // it would not fit, or it did not
  io,             // the operating system refused
  cancelled,      // somebody asked for it to stop
  busy,           // too many requests wait already; try again later
  failed,         // the model could not compute an answer
  internal,       // our own mistake
};

class QUARREL_API Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  ErrorKind kind() const noexcept { return kind_; }

 private:
  ErrorKind kind_;
};

// "0.1.0".
QUARREL_API const char* version() noexcept;

// Who comes first where there is not room for all. Waiting raises it.
enum class Priority { interactive, normal, batch };

// How the rows of a text become one vector.
enum class Pooling {
  none,  // they do not: a vector a token
  mean,  // of all rows
  cls,   // the first row
  last,  // the last row
  rank,  // scores of a classifier on the first row
};

}  // namespace quarrel::api
