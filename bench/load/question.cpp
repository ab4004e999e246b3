#include "load/question.h"

#include <fmt/format.h>

#include <array>
#include <string_view>

namespace quarrel::load {
namespace {

// Each is one token with its space in the vocabularies that are about.
constexpr std::array<std::string_view, 48> kWords = {
    "the",   "time", "people", "water", "house", "long",  "little", "world", "year",  "work", "great", "where",
    "place", "live", "after",  "back",  "only",  "round", "man",    "good",  "sound", "name", "form",  "great",
    "small", "end",  "home",   "hand",  "port",  "large", "spell",  "land",  "here",  "must", "big",   "high",
    "act",   "ask",  "change", "light", "kind",  "off",   "need",   "page",  "river", "tree", "cross", "farm"};

// Of splitmix64: every bit of the number changes every bit of the result.
std::uint64_t mixed(std::uint64_t number) {
  number += 0x9e3779b97f4a7c15u;
  number = (number ^ (number >> 30)) * 0xbf58476d1ce4e5b9u;
  number = (number ^ (number >> 27)) * 0x94d049bb133111ebu;
  return number ^ (number >> 31);
}

}  // namespace

Question make_question(std::uint64_t number, int words, int output) {
  const std::uint64_t nonce = mixed(number);
  Question question{.seed = nonce >> 12, .output = output};
  std::uint64_t state = nonce;
  for (int i = 0; i < words; ++i) {
    state = mixed(state);
    question.prompt += fmt::format("{}{}", i == 0 ? "" : " ", kWords[state % kWords.size()]);
  }
  return question;
}

}  // namespace quarrel::load
