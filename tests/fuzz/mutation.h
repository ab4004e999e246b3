// Changes to valid requests: bytes that are flipped, cut, doubled or taken from a list of odd ones, and JSON whose
// values are exchanged for others. The same seed makes the same changes. One thread an object.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace quarrel::fuzz {

class Mutator {
 public:
  explicit Mutator(std::uint64_t seed) : random_(seed) {}

  // One to four changes of its bytes.
  std::string bytes(std::string text);
  // One to four changes of its values; then, now and then, of its bytes.
  std::string json(std::string_view text);

  std::size_t below(std::size_t count) { return std::uniform_int_distribution<std::size_t>(0, count - 1)(random_); }

 private:
  using Json = nlohmann::ordered_json;

  void change_bytes(std::string& text);
  void change_value(Json& root);
  Json odd_value();

  std::mt19937_64 random_;
};

}  // namespace quarrel::fuzz
