#include "support/toy_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>

#include "base/error.h"
#include "gguf/file.h"
#include "quant/decode.h"
#include "support/golden.h"
#include "support/temp_dir.h"

namespace quarrel::test {
namespace {

// FNV-1a, 64 bits.
std::uint64_t hash(std::span<const std::byte> bytes) {
  std::uint64_t state = 0xcbf29ce484222325u;
  for (const std::byte byte : bytes) state = (state ^ static_cast<std::uint64_t>(byte)) * 0x100000001b3u;
  return state;
}

ErrorKind kind_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.kind();
  }
  ADD_FAILURE() << "nothing was thrown";
  return ErrorKind::internal;
}

std::span<const std::string_view> texts(const GgufFile& file, std::string_view key) {
  return file.strings(key).value_or(std::span<const std::string_view>{});
}

// Of the files that the golden logits were made with, and of their like in F16 and with another seed.
struct KnownToy {
  std::string_view name;
  std::uint64_t f32, f16, other_seed;
};
constexpr std::uint64_t kOtherSeed = 2705032711;
constexpr KnownToy kKnownToys[] = {
    {"llama", 0x22513debb7ab94cd, 0x8d9f3d38721641a2, 0x7a2c52d2b2587b6c},
    {"llama3", 0x8e87c1e040eb768b, 0xc6ead80b944f706d, 0x99e29a6470206321},
    {"mixtral", 0xe7c2477b776f01f7, 0x3ca3025cfc52f90f, 0xa6f7a803eaf0b312},
    {"qwen2", 0x3ea616af0322acfb, 0x5e187204c39cb06f, 0x958f78f0875e8e88},
    {"qwen3", 0x722b1305f86732e7, 0xbf4279172e3e9a48, 0xa105072ffe3112a5},
    {"qwen3moe", 0xf2330b8602b90118, 0x5cdaed1f4b5557f6, 0xc01389279a1fe203},
    {"phi3", 0x6dec54a186151a64, 0xf3b93db5a1692ad7, 0xaa23d4977f0382c5},
    {"gemma3", 0xb11776021203b575, 0xb37ff43332028321, 0x1837e03f71f5a2c9},
    {"granite", 0x7865805f4c2a4b9d, 0x8582885fdb1c8e90, 0x70f19244db98f1fd},
    {"granitemoe", 0xb01c37b51c7cb15b, 0x8a53ab4a728cecb3, 0xdef6971ce844679b},
    {"granitehybrid", 0xd61824034d3afeea, 0x2b9ee8f99666d6d7, 0xf255806d4e257380},
    {"granitehybrid-dense", 0x150a3d04dc8fe4eb, 0x03a2d429456eadf0, 0xd3ea7dfdd8bbf2aa},
    {"nemotron", 0x09e3addcce47faf1, 0x268476b76a1e9847, 0xee7e6bf607e6f91e},
    {"nemotron_h", 0xd5a6d39cccf6a0e9, 0x3f006a2d9e7bd116, 0x6e99dc37b1408003},
    {"nemotron_h_moe", 0xd20bae54d49c7a77, 0xf0044312c439c623, 0x35a95e42f2b33db3},
    {"gpt-oss", 0x18493090753aa5ba, 0xa9a146daa3fa1c48, 0x7147219cc1e76a87},
    {"mamba", 0xa4e257359cbdb89d, 0x3fd75785e8ff7225, 0x3df1cd9715712fbc},
    {"mamba2", 0x73359ed776236e2e, 0x3ce9d8d12017df7a, 0x9723c3f5e299f850},
    {"nomic-bert", 0xd04ca7f001e6c901, 0xab8a678873a7b933, 0x21df25a559eb0bb9},
    {"bert", 0xf0c43777a6ba944e, 0x72d595ce082168ec, 0x6beecfa0a1d6d60e},
};

TEST(ToyModel, IsTheModelOfTheGoldenLogits) {
  ASSERT_EQ(toy_names().size(), std::size(kKnownToys));
  for (std::size_t i = 0; i < std::size(kKnownToys); ++i) {
    const KnownToy& known = kKnownToys[i];
    EXPECT_EQ(toy_names()[i], known.name);
    EXPECT_EQ(hash(make_toy(known.name)), known.f32) << known.name;
  }
}

TEST(ToyModel, TypeAndSeedAreTheSameOnEveryMachine) {
  for (const KnownToy& known : kKnownToys) {
    EXPECT_EQ(hash(make_toy(known.name, {.type = QuantType::f16})), known.f16) << known.name;
    EXPECT_EQ(hash(make_toy(known.name, {.seed = kOtherSeed})), known.other_seed) << known.name;
  }
}

TEST(ToyModel, TakesOtherSizes) {
  const ToyOptions llama{.seed = 7,
                         .type = QuantType::f16,
                         .embedding = 256,
                         .layers = 2,
                         .feed_forward = 512,
                         .heads = 4,
                         .kv_heads = 1,
                         .head = 64,
                         .rotary = 32,
                         .vocabulary = 512,
                         .context = 1024,
                         .rope_base = 50000.0};
  EXPECT_EQ(hash(make_toy("llama", llama)), 0xc1018e1bd400928c);
  const ToyOptions mixtral{.seed = 3, .experts = 4, .experts_used = 1, .window = 9};
  EXPECT_EQ(hash(make_toy("mixtral", mixtral)), 0x5f14e93a18ef9545);
  const ToyOptions hybrid{.seed = 3, .embedding = 192, .layers = 3};
  EXPECT_EQ(hash(make_toy("granitehybrid", hybrid)), 0x3ba1ee65a1a54d17);
}

TEST(ToyModel, RefusesWhatItCannotMake) {
  EXPECT_EQ(kind_of([] { make_toy("gpt-9"); }), ErrorKind::usage);
  EXPECT_EQ(kind_of([] { make_toy("mamba", {.layers = 4}); }), ErrorKind::usage);
  EXPECT_EQ(kind_of([] { make_toy_chat({.vocabulary = 320}); }), ErrorKind::usage);
}

TEST(ToyModel, QuantisesTheLargeMatricesAlone) {
  const std::vector<std::byte> plain_bytes = make_toy("nemotron_h_moe");
  const std::vector<std::byte> bytes = make_toy("nemotron_h_moe", {.type = QuantType::q8_0});
  const GgufFile plain = GgufFile::view(plain_bytes, "plain");
  const GgufFile file = GgufFile::view(bytes, "quantised");
  ASSERT_EQ(file.tensors().size(), plain.tensors().size());
  EXPECT_EQ(file.find_tensor("blk.1.ffn_up_exps.weight")->type, QuantType::q8_0);
  EXPECT_EQ(file.find_tensor("blk.0.ssm_in.weight")->type, QuantType::q8_0);
  EXPECT_EQ(file.find_tensor("blk.0.ssm_conv1d.weight")->type, QuantType::f32);
  EXPECT_EQ(file.find_tensor("blk.1.ffn_gate_inp.weight")->type, QuantType::f32);
  for (const GgufTensor& tensor : file.tensors()) {
    std::vector<float> values(tensor.elements());
    std::vector<float> expected(tensor.elements());
    decode_row(tensor.type, file.data(tensor), values.data(), values.size());
    decode_row(QuantType::f32, plain.data(*plain.find_tensor(tensor.name)), expected.data(), expected.size());
    EXPECT_LE(nmse(values, expected), tensor.type == QuantType::q8_0 ? 1e-4 : 0.0) << tensor.name;
  }
}

TEST(ToyModel, IsWrittenToAFolder) {
  const TempDir folder;
  const std::filesystem::path path = write_toy("qwen2", folder.path(), {.layers = 1});
  EXPECT_EQ(path, folder / "qwen2.gguf");
  EXPECT_EQ(load_bytes(path), make_toy("qwen2", {.layers = 1}));
}

TEST(ToyChat, HasAWholeVocabularyAndATemplate) {
  const TempDir folder;
  const GgufFile file = GgufFile::open(write_toy_chat(folder.path()));
  const std::vector<std::string> tokens = toy_chat_tokens();
  EXPECT_EQ(tokens[1], "<|im_start|>");
  EXPECT_EQ(tokens[2], "<|im_end|>");
  EXPECT_EQ(file.unsigned_integer("tokenizer.ggml.eos_token_id"), 2u);
  EXPECT_TRUE(std::ranges::equal(texts(file, "tokenizer.ggml.tokens"), tokens));
  EXPECT_EQ(file.unsigned_integer("llama.vocab_size"), tokens.size());
  EXPECT_EQ(file.find_tensor("token_embd.weight")->shape[1], tokens.size());
  EXPECT_EQ(file.numbers("tokenizer.ggml.token_type").value_or(GgufNumbers{}).count, tokens.size());
  EXPECT_NE(file.string("tokenizer.chat_template").value_or("").find("<|im_start|>assistant"), std::string_view::npos);

  std::vector<std::string> sorted = tokens;
  std::ranges::sort(sorted);
  EXPECT_EQ(std::ranges::adjacent_find(sorted), sorted.end()) << "a token stands twice";
  EXPECT_TRUE(std::ranges::binary_search(sorted, "Ġthe"));
  EXPECT_TRUE(std::ranges::binary_search(sorted, "Ċ"));
}

TEST(ToyChat, EveryMergeJoinsTokensIntoAToken) {
  const std::vector<std::byte> bytes = make_toy_chat({.layers = 1});
  const GgufFile file = GgufFile::view(bytes, "chat");
  const std::vector<std::string> tokens = toy_chat_tokens();
  const auto merges = texts(file, "tokenizer.ggml.merges");
  EXPECT_GT(merges.size(), 90u);
  ASSERT_EQ(tokens.size(), 3 + 256 + merges.size());
  for (std::size_t i = 0; i < merges.size(); ++i) {
    const std::size_t space = merges[i].find(' ');
    ASSERT_NE(space, std::string_view::npos);
    const std::string left(merges[i].substr(0, space));
    const std::string right(merges[i].substr(space + 1));
    EXPECT_EQ(tokens[3 + 256 + i], left + right);
    EXPECT_NE(std::ranges::find(tokens, left), tokens.end()) << left;
    EXPECT_NE(std::ranges::find(tokens, right), tokens.end()) << right;
  }
}

TEST(Golden, TokensAreTheAgreedOnes) {
  const std::vector<std::int32_t> tokens = golden_tokens();
  ASSERT_EQ(tokens.size(), kGoldenTokens);
  EXPECT_EQ(std::vector(tokens.begin(), tokens.begin() + 4), (std::vector<std::int32_t>{57, 124, 76, 9}));
  EXPECT_EQ(tokens.back(), 53);
}

TEST(Golden, ErrorIsRelativeToTheGoldenPower) {
  const std::vector<float> golden{3, -4, 0};
  EXPECT_EQ(nmse(golden, golden), 0.0);
  EXPECT_DOUBLE_EQ(nmse(std::vector<float>{3, -4, 5}, golden), 1.0);
  EXPECT_FALSE(nmse(std::vector<float>{3, -4, std::numeric_limits<float>::quiet_NaN()}, golden) <= 1e30);
  EXPECT_EQ(kind_of([&] { nmse(std::vector<float>{3, -4}, golden); }), ErrorKind::bad_input);
  EXPECT_EQ(kind_of([] { nmse(std::vector<float>{1}, std::vector<float>{0}); }), ErrorKind::bad_input);
}

TEST(Golden, DataOfEveryToyIsThere) {
  for (const std::string_view name : toy_names()) {
    const std::vector<float> values = load_f32(test_data("arch/" + std::string(name) + ".f32"));
    const bool embeds = name.ends_with("bert");
    EXPECT_EQ(values.size(), embeds ? 128 : kGoldenTokens * kGoldenVocabulary) << name;
    EXPECT_EQ(nmse(values, values), 0.0) << name;
  }
}

TEST(Golden, FilesThatCannotBeReadAreErrors) {
  const TempDir folder;
  EXPECT_EQ(kind_of([&] { load_bytes(folder / "none"); }), ErrorKind::io);
  EXPECT_EQ(kind_of([&] { save_bytes(folder / "none" / "a", {}); }), ErrorKind::io);
  save_bytes(folder / "five", std::vector<std::byte>(5));
  EXPECT_EQ(kind_of([&] { load_f32(folder / "five"); }), ErrorKind::bad_file);
}

TEST(TempDir, GoesWithItsObject) {
  std::filesystem::path path;
  {
    const TempDir folder;
    path = folder.path();
    save_bytes(folder / "a", std::vector<std::byte>(1));
    EXPECT_TRUE(std::filesystem::exists(path / "a"));
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

}  // namespace
}  // namespace quarrel::test
