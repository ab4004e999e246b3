// Whether a sanitizer watches: what takes ten times as long then is done less often, or with less.
#pragma once

namespace quarrel::test {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace quarrel::test
