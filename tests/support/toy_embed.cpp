// The vocabulary of the embedding toy: what a trained WordPiece has, only smaller.
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <vector>

#include "base/error.h"
#include "support/golden.h"
#include "support/toy_model.h"
#include "support/toy_recipes.h"

namespace quarrel::test {
namespace {

constexpr std::array<std::string_view, 5> kControl{"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
constexpr std::uint32_t kPadding = 0, kUnknown = 1, kCls = 2, kSeparator = 3, kMask = 4;
constexpr std::int32_t kNormalKind = 1, kUnknownKind = 2, kControlKind = 3;
constexpr std::string_view kPieces = "abcdefghijklmnopqrstuvwxyz0123456789";
constexpr std::string_view kAlone = ".,:;!?-_'\"()";
constexpr std::array<std::string_view, 12> kWords{"the",  "search", "query", "document", "a",   "is",
                                                  "long", "word",   "and",   "of",       "fox", "dog"};

GgufWriter embed_writer(const ToyOptions& options) {
  if (options.vocabulary) fail(ErrorKind::usage, "the embedding toy has a vocabulary of its own");
  std::vector<std::string> tokens(kControl.begin(), kControl.end());
  for (const char c : kPieces) {
    tokens.push_back(fmt::format("▁{}", c));
    tokens.emplace_back(1, c);
  }
  for (const char c : kAlone) tokens.push_back(fmt::format("▁{}", c));
  for (const std::string_view word : kWords) {
    if (word.size() > 1) tokens.push_back(fmt::format("▁{}", word));
  }
  std::vector<std::int32_t> kinds(tokens.size(), kNormalKind);
  for (std::size_t i = 0; i < kControl.size(); ++i) kinds[i] = i == kUnknown ? kUnknownKind : kControlKind;

  ToyRecipe recipe = toy_recipe("bert", options);
  recipe.name = "embed";
  recipe.ranks = options.ranks;
  recipe.vocabulary = static_cast<std::uint32_t>(tokens.size());
  GgufWriter writer;
  put_toy_entries(writer, recipe);
  writer.put_string("tokenizer.ggml.model", "bert");
  writer.put_strings("tokenizer.ggml.tokens", tokens);
  writer.put_i32s("tokenizer.ggml.token_type", kinds);
  writer.put_u32("tokenizer.ggml.padding_token_id", kPadding);
  writer.put_u32("tokenizer.ggml.unknown_token_id", kUnknown);
  writer.put_u32("tokenizer.ggml.cls_token_id", kCls);
  writer.put_u32("tokenizer.ggml.seperator_token_id", kSeparator);
  writer.put_u32("tokenizer.ggml.mask_token_id", kMask);
  add_toy_tensors(writer, recipe, options.seed, options.type);
  if (options.ranks) {
    std::vector<float> head(recipe.embedding);
    for (std::size_t i = 0; i < head.size(); ++i) head[i] = static_cast<float>(std::sin(static_cast<double>(i)));
    writer.add_tensor("cls.output.weight", {recipe.embedding, 1}, head);
    writer.add_tensor("cls.output.bias", {1}, std::vector<float>{0.25f});
  }
  return writer;
}

}  // namespace

std::vector<std::byte> make_toy_embed(const ToyOptions& options) { return finished_toy(embed_writer(options)); }

std::filesystem::path write_toy_embed(const std::filesystem::path& folder, const ToyOptions& options) {
  std::filesystem::path path = folder / "embed.gguf";
  save_bytes(path, make_toy_embed(options));
  return path;
}

}  // namespace quarrel::test
