// Which endpoints are fuzzed: all of the table of routes that take a body.
#pragma once

#include <span>
#include <string_view>

#include "server/routes.h"

namespace quarrel::fuzz {

std::span<const Route* const> routes_with_bodies();

// The status that a body is answered with where there is no model at all: 404 if it could be read and names one.
unsigned answer_to_body(const Route& row, std::string_view body);

// The status of the answer of a small toy, which has each model's name that the endpoints' examples have. The answer is
// waited for to its end.
unsigned answer_of_toy(const Route& row, std::string_view body);

}  // namespace quarrel::fuzz
