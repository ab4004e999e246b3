#include "session/known_sampling.h"

#include <algorithm>
#include <array>
#include <variant>

namespace quarrel {
namespace {

// Penalties are left out even where a card has one: they hurt small models more than they help.
constexpr std::array<KnownSampling, 11> kFamilies{{
    {.family = "SmolLM2", .temperature = 0.2f, .top_p = 0.9f},
    {.family = "SmolLM3", .temperature = 0.6f, .top_p = 0.95f},
    {.family = "Llama 3", .temperature = 0.6f, .top_p = 0.9f},
    {.family = "Meta Llama 3", .temperature = 0.6f, .top_p = 0.9f},
    {.family = "Qwen2.5", .temperature = 0.7f, .top_k = 20, .top_p = 0.8f},
    {.family = "Qwen3", .temperature = 0.6f, .top_k = 20, .top_p = 0.95f, .min_p = 0.0f},
    {.family = "Gemma 3", .temperature = 1.0f, .top_k = 64, .top_p = 0.95f, .min_p = 0.0f},
    {.family = "DeepSeek-R1", .temperature = 0.6f, .top_p = 0.95f},
    {.family = "Mistral Small", .temperature = 0.15f},
    {.family = "Mistral Nemo", .temperature = 0.3f},
    {.family = "GPT-OSS", .temperature = 1.0f, .top_k = 0, .top_p = 1.0f, .min_p = 0.0f},
}};

char lower(char letter) { return letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter; }
bool is_digit(char letter) { return letter >= '0' && letter <= '9'; }
bool counts(char letter) { return is_digit(letter) || (lower(letter) >= 'a' && lower(letter) <= 'z'); }

// "meta-llama_3.1-8B" is a Meta Llama 3; "Llama 30B" is not a Llama 3.
bool is_of(std::string_view name, std::string_view family) {
  for (const char wanted : family) {
    if (!counts(wanted)) continue;
    while (!name.empty() && !counts(name.front())) name.remove_prefix(1);
    if (name.empty() || lower(name.front()) != lower(wanted)) return false;
    name.remove_prefix(1);
  }
  return name.empty() || !is_digit(name.front());
}

}  // namespace

const KnownSampling* find_known_sampling(const GgufFile& file) {
  for (const char* key : {"general.basename", "general.name"}) {
    const GgufEntry* entry = file.find(key);
    const auto* text = entry == nullptr ? nullptr : std::get_if<std::string_view>(&entry->value);
    if (text == nullptr) continue;
    const auto* row =
        std::ranges::find_if(kFamilies, [&](const KnownSampling& known) { return is_of(*text, known.family); });
    if (row != kFamilies.end()) return row;
  }
  return nullptr;
}

}  // namespace quarrel
