// Who counts as one sender, wherever addresses are counted.
#pragma once

#include <string>
#include <string_view>

namespace quarrel::http {

// An IPv4 address, or the /64 network of an IPv6 address, all of which one machine has.
std::string sender_of(std::string_view address);

}  // namespace quarrel::http
