// Who asks: what admission found out about a request's sender, and what that one may do. Plain values; made once a key
// and shared by its requests.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/request.h"

namespace quarrel {

enum class Role : std::uint8_t { use, admin };

struct Caller {
  std::string name = {};                  // of the key; empty: there is none
  Role role = Role::admin;                // where there are no keys, everybody may do everything
  std::vector<std::string> models = {};   // that it may use; empty: all
  std::uint64_t key = 0;                  // whose turn it is, for the queue
  std::uint64_t salt = 0;                 // callers of different salts share no cached prompts
  std::optional<Priority> priority = {};  // comes in place of what the kind of request has

  bool may_use(std::string_view model) const noexcept {
    return models.empty() || std::ranges::find(models, model) != models.end();
  }
};

}  // namespace quarrel
