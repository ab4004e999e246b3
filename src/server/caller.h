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
#include "server/model_tag.h"

namespace quarrel {

enum class Role : std::uint8_t { use, admin };

// What a key may have; 0: as much as it likes.
struct KeyLimits {
  std::int64_t requests_per_minute = 0;
  std::int64_t tokens_per_minute = 0;  // read and generated
  std::int64_t concurrency = 0;        // requests that are worked on at once

  bool any() const noexcept { return requests_per_minute > 0 || tokens_per_minute > 0 || concurrency > 0; }
  bool operator==(const KeyLimits&) const = default;
};

struct Caller {
  std::string name = {};                  // of the key; empty: there is none
  std::string credential = {};            // how it is known, for KeyRing::accepts; nothing secret
  Role role = Role::admin;                // where there are no keys, everybody may do everything
  std::vector<std::string> models = {};   // that it may use; empty: all
  std::uint64_t key = 0;                  // whose turn it is, for the queue
  std::uint64_t salt = 0;                 // callers of different salts share no cached prompts
  std::optional<Priority> priority = {};  // comes in place of what the kind of request has
  KeyLimits limits = {};

  // By the name itself: Service::may_use knows which models have another one.
  bool may_use(std::string_view model) const noexcept {
    return models.empty() ||
           std::ranges::any_of(models, [&](const std::string& each) { return is_one_model(each, model); });
  }
};

}  // namespace quarrel
