// Weights of one type written as another: the same bytes as the encoder's, close to what they were, everything else
// untouched.
#include <gtest/gtest.h>

#include <map>

#include "convert/quantize.h"
#include "support/golden.h"
#include "support/temp_dir.h"
#include "unit/convert_support.h"

namespace quarrel {
namespace {

namespace fs = std::filesystem;
using test::expect_error;
using test::TempDir;
using test::values_of;

constexpr test::ToyOptions kToy{.embedding = 256, .layers = 2, .feed_forward = 512, .heads = 4, .head = 64};

class Quantizing : public ::testing::Test {
 protected:
  GgufFile toy(const char* name, const test::ToyOptions& options = kToy) {
    return GgufFile::open(test::write_toy(name, folder_.path(), options));
  }
  GgufFile run(const GgufFile& file, const char* type, const QuantizeOptions& options = {.overwrite = true}) {
    quantize_file(file, target_, find_target_type(type), options, log_);
    return GgufFile::open(target_);
  }

  TempDir folder_;
  fs::path target_ = folder_ / "out.gguf";
  MemoryLog log_;
};

TEST_F(Quantizing, EveryTypeIsWhatTheEncoderMakes) {
  const GgufFile file = toy("llama");
  const std::map<std::string_view, double> bounds = {
      {"F32", 0},       {"F16", 1e-6},    {"BF16", 1e-4},   {"Q8_0", 1e-4},   {"Q6_K", 1e-3},
      {"Q5_K", 3e-3},   {"Q5_K_M", 3e-3}, {"Q5_1", 3e-3},   {"Q5_0", 4e-3},   {"Q4_K", 1e-2},
      {"Q4_K_M", 1e-2}, {"Q4_1", 1e-2},   {"Q4_0", 1.5e-2}, {"IQ4_NL", 1e-2}, {"MXFP4", 3e-2}};
  for (const TargetType& type : target_types()) {
    SCOPED_TRACE(type.name);
    const GgufFile made = run(file, std::string(type.name).c_str());
    ASSERT_EQ(made.tensors().size(), file.tensors().size());
    EXPECT_EQ(made.unsigned_integer("general.file_type"), type.file_type);
    for (const GgufEntry& entry : file.entries()) {
      EXPECT_TRUE(entry.key == "general.alignment" || made.find(entry.key) != nullptr) << entry.key;
    }
    EXPECT_EQ(made.unsigned_integer("llama.embedding_length"), 256U);
    for (const GgufTensor& before : file.tensors()) {
      const GgufTensor& after = *made.find_tensor(before.name);
      const std::vector<float> values = values_of(file, before);
      if (before.dimensions == 1) {
        EXPECT_EQ(after.type, QuantType::f32) << before.name;
      } else {
        EXPECT_TRUE(after.type == type.type || after.type == type.better) << before.name;
      }
      std::vector<std::byte> encoded(after.bytes);
      encode_row(after.type, values.data(), encoded.data(), values.size());
      EXPECT_EQ(std::memcmp(encoded.data(), made.data(after), after.bytes), 0) << before.name;
      EXPECT_LE(test::nmse(values_of(made, after), values), bounds.at(type.name)) << before.name;
    }
  }
  EXPECT_TRUE(log_.lines.empty());
}

TEST_F(Quantizing, MixesGiveMoreBitsWhereTheyCount) {
  const GgufFile made = run(toy("llama"), "Q4_K_M");
  EXPECT_EQ(made.find_tensor("output.weight")->type, QuantType::q6_k);
  EXPECT_EQ(made.find_tensor("token_embd.weight")->type, QuantType::q4_k);
  EXPECT_EQ(made.find_tensor("blk.0.attn_v.weight")->type, QuantType::q6_k);
  EXPECT_EQ(made.find_tensor("blk.0.ffn_down.weight")->type, QuantType::q6_k);
  EXPECT_EQ(made.find_tensor("blk.1.ffn_down.weight")->type, QuantType::q4_k);
  EXPECT_EQ(made.find_tensor("blk.1.attn_q.weight")->type, QuantType::q4_k);
  EXPECT_EQ(wanted_type(find_target_type("Q5_K_M"), "token_embd.weight", true), QuantType::q6_k);
}

// Experts are matrices in a stack; what routes to them stays exact.
TEST_F(Quantizing, ExpertsToo) {
  const GgufFile file = toy("qwen3moe");
  const GgufFile made = run(file, "Q8_0");
  const GgufTensor& before = *file.find_tensor("blk.0.ffn_up_exps.weight");
  const GgufTensor& after = *made.find_tensor("blk.0.ffn_up_exps.weight");
  EXPECT_EQ(after.type, QuantType::q8_0);
  EXPECT_EQ(after.shape, before.shape);
  EXPECT_LE(test::nmse(values_of(made, after), values_of(file, before)), 1e-4);
  EXPECT_EQ(made.find_tensor("blk.0.ffn_gate_inp.weight")->type, QuantType::f32);
}

TEST_F(Quantizing, AnyTypeCanBeRead) {
  test::ToyOptions options = kToy;
  options.type = QuantType::q4_k;
  const GgufFile file = toy("llama", options);
  const GgufFile same = run(file, "Q4_K");
  for (const GgufTensor& before : file.tensors()) {
    const GgufTensor& after = *same.find_tensor(before.name);
    ASSERT_EQ(after.bytes, before.bytes);
    EXPECT_EQ(std::memcmp(same.data(after), file.data(before), after.bytes), 0) << "the same type is copied";
  }
  const GgufFile plain = run(file, "F32");
  for (const GgufTensor& before : file.tensors()) {
    EXPECT_EQ(values_of(plain, *plain.find_tensor(before.name)), values_of(file, before)) << before.name;
  }
}

TEST_F(Quantizing, RowsThatFitNoBlockGetAnotherType) {
  EXPECT_EQ(fitting_type(QuantType::q6_k, 512), QuantType::q6_k);
  EXPECT_EQ(fitting_type(QuantType::q6_k, 96), QuantType::q8_0);
  EXPECT_EQ(fitting_type(QuantType::q5_k, 96), QuantType::q5_1);
  EXPECT_EQ(fitting_type(QuantType::q4_k, 100), QuantType::f16);
  EXPECT_EQ(fitting_type(QuantType::q4_0, 100), QuantType::f16);
  EXPECT_EQ(fitting_type(QuantType::bf16, 100), QuantType::bf16);
  const GgufFile made = run(toy("llama", {.feed_forward = 96}), "Q4_K");
  EXPECT_EQ(made.find_tensor("blk.0.ffn_down.weight")->type, QuantType::q4_1);
  ASSERT_FALSE(log_.lines.empty());
  EXPECT_EQ(log_.lines[0].first, LogLevel::warning);
}

TEST_F(Quantizing, ASplitModelBecomesOneFile) {
  for (const std::uint16_t part : {std::uint16_t{0}, std::uint16_t{1}}) {
    test::Raw raw;
    raw.header(1, part == 0 ? 4 : 3).text("split.no").u32(2).number(part);
    raw.text("split.count").u32(2).number(std::uint16_t{2}).text("split.tensors.count").u32(5).number(2);
    if (part == 0) raw.text("kept").u32(4).u32(7);
    raw.tensor(part == 0 ? "a.weight" : "b.weight", {32, 2}, 0, 0).align();
    for (int i = 0; i < 64; ++i) raw.number(static_cast<float>(i + part));
    test::write_file(folder_ / (part == 0 ? "m-00001-of-00002.gguf" : "m-00002-of-00002.gguf"),
                     test::as_text(raw.bytes));
  }
  const GgufFile made = run(GgufFile::open(folder_ / "m-00001-of-00002.gguf"), "Q8_0");
  EXPECT_EQ(made.part_count(), 1U);
  ASSERT_EQ(made.tensors().size(), 2U);
  EXPECT_EQ(made.find("split.count"), nullptr);
  EXPECT_EQ(made.unsigned_integer("kept"), 7U);
  EXPECT_NEAR(values_of(made, *made.find_tensor("b.weight"))[63], 64.0f, 0.1f);
  expect_error(ErrorKind::usage, {"would be read"}, [&] {
    quantize_file(GgufFile::open(folder_ / "m-00001-of-00002.gguf"), folder_ / "m-00002-of-00002.gguf",
                  find_target_type("F16"), {.overwrite = true}, log_);
  });
}

TEST_F(Quantizing, RefusesInOneSentence) {
  expect_error(ErrorKind::usage, {"'Q4_KM'", "did you mean", "Q4_K_M"}, [] { find_target_type("Q4_KM"); });
  expect_error(ErrorKind::usage, {"'zebra'", "there are", "MXFP4"}, [] { find_target_type("zebra"); });
  EXPECT_EQ(find_target_type("q4_k_m").name, "Q4_K_M");
  const fs::path path = test::write_toy("llama", folder_.path(), kToy);
  const GgufFile file = GgufFile::open(path);
  expect_error(ErrorKind::usage, {"would be read"},
               [&] { quantize_file(file, path, find_target_type("F16"), {.overwrite = true}, log_); });
  fs::create_hard_link(path, folder_ / "link.gguf");
  expect_error(ErrorKind::usage, {"would be read"},
               [&] { quantize_file(file, folder_ / "link.gguf", find_target_type("F16"), {.overwrite = true}, log_); });
  std::stop_source stop;
  stop.request_stop();
  expect_error(ErrorKind::cancelled, {}, [&] {
    quantize_file(file, target_, find_target_type("F16"), {.recode = {.stop = stop.get_token()}}, log_);
  });
  EXPECT_FALSE(fs::exists(target_));
}

TEST_F(Quantizing, ThreadsDoNotMatterAndProgressEnds) {
  const GgufFile file = toy("llama");
  std::string first;
  for (const int threads : {1, 2, 0}) {
    std::uint64_t last = 0;
    QuantizeOptions options{.overwrite = true, .recode = {.threads = threads}};
    std::uint64_t all = 0;
    options.recode.progress = [&](std::uint64_t done, std::uint64_t total) {
      EXPECT_GE(done, last);
      last = done;
      all = total;
    };
    run(file, "Q5_K", options);
    EXPECT_EQ(last, all);
    EXPECT_GT(all, 0U);
    const std::string bytes = test::read_file(target_);
    if (first.empty()) first = bytes;
    EXPECT_EQ(bytes, first);
  }
}

}  // namespace
}  // namespace quarrel
