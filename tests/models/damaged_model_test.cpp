// Model files that are well-formed containers but not usable models: each ends in a sentence that names the trouble.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "backend/create.h"
#include "base/error.h"
#include "gguf/writer.h"
#include "models/runner.h"
#include "support/golden.h"
#include "support/temp_dir.h"
#include "support/toy_model.h"

namespace quarrel::test {
namespace {

// Copies a toy and lets the caller change each tensor: another shape, other values, or none at all.
struct Change {
  bool drop = false;
  std::vector<std::uint64_t> shape = {};  // empty: as it was
  float poison = 0;                       // written over the first value when not zero
};

std::filesystem::path damaged(const TempDir& folder, const std::function<Change(std::string_view)>& change,
                              std::string_view toy = "llama") {
  const std::vector<std::byte> bytes = make_toy(toy);
  const GgufFile file = GgufFile::view(bytes, "toy");
  GgufWriter writer;
  for (const GgufEntry& entry : file.entries()) {
    if (entry.key != "general.alignment") writer.put_entry(entry);
  }
  for (const GgufTensor& tensor : file.tensors()) {
    const Change wanted = change(tensor.name);
    if (wanted.drop) continue;
    std::vector<std::uint64_t> shape(tensor.shape.begin(), tensor.shape.begin() + tensor.dimensions);
    if (!wanted.shape.empty()) shape = wanted.shape;
    std::uint64_t count = 1;
    for (const std::uint64_t size : shape) count *= size;
    std::vector<float> values(count, 0.01f);
    std::memcpy(values.data(), file.data(tensor), std::min<std::size_t>(tensor.bytes, count * sizeof(float)));
    if (wanted.poison != 0) values[0] = wanted.poison;
    writer.add_tensor(tensor.name, shape, values);
  }
  const auto path = folder / "damaged.gguf";
  writer.write(path);
  return path;
}

std::string message_of(const std::filesystem::path& path, const char* backend, ErrorKind kind) {
  const auto device = make_device({.backend = backend});
  try {
    logits_of(path, *device, golden_tokens());
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

TEST(DamagedModel, MissingTensorIsNamed) {
  const TempDir folder;
  const auto path =
      damaged(folder, [](std::string_view name) { return Change{.drop = name == "blk.1.ffn_up.weight"}; });
  EXPECT_NE(message_of(path, "cpu", ErrorKind::bad_file).find("blk.1.ffn_up.weight"), std::string::npos);
}

TEST(DamagedModel, WrongShapeSaysWhatWasExpected) {
  const TempDir folder;
  const auto path = damaged(folder, [](std::string_view name) {
    return name == "blk.0.attn_k.weight" ? Change{.shape = {128, 48}} : Change{};
  });
  const std::string message = message_of(path, "cpu", ErrorKind::bad_file);
  EXPECT_NE(message.find("blk.0.attn_k.weight"), std::string::npos) << message;
  EXPECT_NE(message.find("[128, 48]"), std::string::npos) << message;
  EXPECT_NE(message.find("[128, 32]"), std::string::npos) << message;
}

TEST(DamagedModel, NumbersThatAreNotFiniteAreReportedWithTheirLayer) {
  const TempDir folder;
  for (const char* tensor : {"blk.1.attn_k.weight", "blk.1.attn_v.weight", "blk.1.attn_output.weight",
                             "blk.1.ffn_gate.weight", "blk.1.ffn_down.weight"}) {
    for (const float poison : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      const auto path =
          damaged(folder, [&](std::string_view name) { return name == tensor ? Change{.poison = poison} : Change{}; });
      for (const char* backend : {"reference", "cpu"}) {
        const std::string message = message_of(path, backend, ErrorKind::bad_file);
        EXPECT_NE(message.find("not finite"), std::string::npos) << tensor << " on " << backend << ": " << message;
      }
    }
  }
}

// Steps that were given up, and of those the ones to blame on a recurrent layer.
TEST(DamagedModel, DivergencesOfRecurrentLayersAreCountedApart) {
  struct Case {
    const char* toy;
    const char* tensor;
    std::uint64_t recurrent;
  };
  const TempDir folder;
  const auto tokens = golden_tokens();
  for (const Case& each : {Case{"mamba", "blk.1.ssm_out.weight", 1}, Case{"llama", "blk.1.ffn_down.weight", 0}}) {
    const auto poisoned = [&](std::string_view name) {
      return name == each.tensor ? Change{.poison = std::numeric_limits<float>::quiet_NaN()} : Change{};
    };
    const auto path = damaged(folder, poisoned, each.toy);
    for (const NamedDevice& named : all_devices()) {
      SCOPED_TRACE(named.name + " " + each.toy);
      Executor executor(GgufFile::open(path), *named.device, {.context = 48});
      Sequences texts(executor);
      TestSequence sequence = texts.make();
      EXPECT_THROW(texts.run_chunked({.sequence = &sequence, .tokens = std::span(tokens).first(4)}), Error);
      EXPECT_EQ(executor.observe().divergences, 1u);
      EXPECT_EQ(executor.observe().ssm_divergences, each.recurrent);
    }
  }
}

TEST(DamagedModel, UnknownArchitectureNamesTheKnownOnes) {
  const TempDir folder;
  GgufWriter writer;
  writer.put_string("general.architecture", "abacus");
  const auto path = folder / "abacus.gguf";
  writer.write(path);
  const std::string message = message_of(path, "cpu", ErrorKind::unsupported);
  EXPECT_NE(message.find("abacus"), std::string::npos);
  EXPECT_NE(message.find("qwen3"), std::string::npos);
}

TEST(DamagedModel, HyperParametersAreBounded) {
  const TempDir folder;
  for (const auto& [key, value] :
       std::initializer_list<std::pair<const char*, std::uint32_t>>{{"llama.block_count", 0},
                                                                    {"llama.block_count", 4000000000u},
                                                                    {"llama.embedding_length", 0},
                                                                    {"llama.attention.head_count", 0},
                                                                    {"llama.attention.head_count_kv", 3},
                                                                    {"llama.attention.head_count_kv", 0},
                                                                    {"llama.attention.key_length", 0},
                                                                    {"llama.rope.dimension_count", 7},
                                                                    {"llama.rope.dimension_count", 1 << 20},
                                                                    {"llama.feed_forward_length", 0},
                                                                    {"llama.context_length", 0}}) {
    const std::vector<std::byte> bytes = make_toy("llama");
    const GgufFile file = GgufFile::view(bytes, "toy");
    GgufWriter writer;
    for (const GgufEntry& entry : file.entries()) {
      if (entry.key != key && entry.key != "general.alignment") writer.put_entry(entry);
    }
    writer.put_u32(key, value);
    for (const GgufTensor& tensor : file.tensors()) {
      std::vector<float> values(tensor.elements());
      std::memcpy(values.data(), file.data(tensor), tensor.bytes);
      writer.add_tensor(tensor.name, {tensor.shape.begin(), tensor.shape.begin() + tensor.dimensions}, values);
    }
    const auto path = folder / "bounds.gguf";
    writer.write(path);
    SCOPED_TRACE(key);
    EXPECT_FALSE(message_of(path, "cpu", ErrorKind::bad_file).empty());
  }
}

TEST(DamagedModel, ContextBeyondMemorySaysWhatWouldFit) {
  const TempDir folder;
  const auto path = write_toy("llama", folder.path());
  const auto device = make_device({.backend = "cpu"});
  try {
    Executor executor(GgufFile::open(path), *device, {.context = 2000000000});
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::out_of_memory);
    EXPECT_NE(std::string(error.what()).find("would fit"), std::string::npos) << error.what();
  }
}

TEST(DamagedModel, TextBeyondTheContextIsRefused) {
  const TempDir folder;
  const auto path = write_toy("llama", folder.path());
  const auto device = make_device({.backend = "cpu"});
  Executor executor(GgufFile::open(path), *device, {.context = 40});
  Sequences texts(executor);
  TestSequence sequence = texts.make();
  const auto tokens = golden_tokens();
  try {
    texts.run_chunked({.sequence = &sequence, .tokens = tokens});
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::bad_input);
    EXPECT_NE(std::string(error.what()).find("48"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("40"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace quarrel::test
