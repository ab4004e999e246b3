// What a profile says an op had to read and to multiply, against what the file and the shape say it must.
#include <gtest/gtest.h>

#include <map>

#include "models/runner.h"
#include "support/golden.h"
#include "support/temp_dir.h"
#include "support/toy_model.h"

namespace quarrel::test {
namespace {

constexpr std::int32_t kPrompt = 8;

using Profile = std::map<std::string, OpTime>;

Profile profile_of(Executor& executor) {
  Profile profile;
  for (const OpTime& op : executor.observe().times) profile[std::string(op.name)] = op;
  return profile;
}

struct Profiles {
  Profile prompt, generated;
};

// A prompt of kPrompt tokens in one step, and one token after it. Both want the last row's logits.
Profiles profiles_of(Executor& executor) {
  const auto tokens = golden_tokens();
  const SamplingParams greedy;
  Sequences texts(executor);
  TestSequence sequence = texts.make();
  Profiles profiles;
  executor.watch_times(true);
  const Want last{.index = kPrompt - 1, .sampling = &greedy};
  texts.run_chunked({.sequence = &sequence,
                     .tokens = std::span(tokens).first(kPrompt),
                     .row_class = RowClass::prompt,
                     .wants = {&last, 1}});
  profiles.prompt = profile_of(executor);
  executor.watch_times(true);
  const Want only{.index = 0, .sampling = &greedy};
  const Feed feed{.sequence = &sequence,
                  .tokens = std::span(tokens).subspan(kPrompt, 1),
                  .row_class = RowClass::generated,
                  .wants = {&only, 1}};
  texts.run({&feed, 1});
  profiles.generated = profile_of(executor);
  return profiles;
}

OpTime sum_of(const Profile& profile, std::initializer_list<const char*> names) {
  OpTime sum;
  for (const char* name : names) {
    const auto found = profile.find(name);
    if (found == profile.end()) continue;
    sum.bytes += found->second.bytes;
    sum.macs += found->second.macs;
    sum.quantised_macs += found->second.quantised_macs;
  }
  return sum;
}

// The matrices of a file's layers whose names hold `part`.
struct Matrices {
  std::uint64_t bytes = 0;
  std::uint64_t elements = 0;
};
Matrices matrices_of(const GgufFile& file, std::string_view part) {
  Matrices sum;
  for (const GgufTensor& tensor : file.tensors()) {
    if (tensor.dimensions < 2 || !tensor.name.starts_with("blk.") || tensor.name.find(part) == std::string_view::npos) {
      continue;
    }
    sum.bytes += tensor.bytes;
    sum.elements += tensor.elements();
  }
  return sum;
}

TEST(Profile, ADenseModelReadsItsWeightsOnceAStep) {
  const TempDir folder;
  for (const QuantType type : {QuantType::f32, QuantType::q8_0}) {
    const auto path = write_toy("llama", folder.path(), {.type = type});
    for (const NamedDevice& named : all_devices()) {
      SCOPED_TRACE(named.name);
      Executor executor(GgufFile::open(path), *named.device, {.context = 48});
      const Matrices layers = matrices_of(executor.file(), "");
      ASSERT_GT(layers.bytes, 0u);
      const GgufTensor* output = executor.file().find_tensor("output.weight");
      if (output == nullptr) output = executor.file().find_tensor("token_embd.weight");
      ASSERT_NE(output, nullptr);
      const Profiles seen = profiles_of(executor);
      for (const auto& [profile, rows] : {std::pair{seen.prompt, std::uint64_t{kPrompt}}, {seen.generated, 1}}) {
        const OpTime products = sum_of(profile, {"qkv", "attention out", "glu", "down"});
        EXPECT_EQ(products.bytes, layers.bytes);
        EXPECT_EQ(products.macs, rows * layers.elements);
        EXPECT_EQ(products.quantised_macs, type == QuantType::f32 ? 0 : products.macs);
        const OpTime head = sum_of(profile, {"head"});
        EXPECT_EQ(head.bytes, output->bytes);
        EXPECT_EQ(head.macs, output->elements()) << "logits are wanted of one row";
        EXPECT_EQ(sum_of(profile, {"norms and int8", "sampling"}).macs, 0u);
      }
    }
  }
}

TEST(Profile, AttentionReadsWhatIsCachedOnceAndMultipliesWhatEachRowSees) {
  const TempDir folder;
  const auto path = write_toy("llama", folder.path());
  for (const NamedDevice& named : all_devices()) {
    SCOPED_TRACE(named.name);
    Executor executor(GgufFile::open(path), *named.device, {.context = 48});
    const KvGroup& group = executor.model().kv_groups()[0];
    const std::uint64_t position_bytes = executor.backend().kv_bytes(group, executor.kv_type()) /
                                         static_cast<std::uint64_t>(executor.backend().block_tokens());
    const Profiles seen = profiles_of(executor);
    const OpTime prompt = sum_of(seen.prompt, {"attend"});
    const OpTime generated = sum_of(seen.generated, {"attend"});
    EXPECT_EQ(prompt.bytes, kPrompt * position_bytes);
    EXPECT_EQ(generated.bytes, (kPrompt + 1) * position_bytes);
    // Rows of the prompt see 1, 2, … kPrompt positions, the next one kPrompt + 1.
    EXPECT_GT(generated.macs, 0u);
    EXPECT_EQ(prompt.macs * (kPrompt + 1), generated.macs * (kPrompt * (kPrompt + 1) / 2));
  }
}

TEST(Profile, ExpertsCountWhereTheyAreChosen) {
  const TempDir folder;
  const auto path = write_toy("mixtral", folder.path());
  for (const NamedDevice& named : all_devices()) {
    SCOPED_TRACE(named.name);
    Executor executor(GgufFile::open(path), *named.device, {.context = 48});
    const Matrices experts = matrices_of(executor.file(), "_exps");
    const Profiles seen = profiles_of(executor);
    // Two of eight.
    const OpTime generated = sum_of(seen.generated, {"experts"});
    EXPECT_EQ(generated.bytes, experts.bytes / 8 * 2);
    EXPECT_EQ(generated.macs, experts.elements / 8 * 2);
    const OpTime prompt = sum_of(seen.prompt, {"experts"});
    EXPECT_EQ(prompt.macs, kPrompt * generated.macs);
    EXPECT_GE(prompt.bytes, generated.bytes);
    EXPECT_LE(prompt.bytes, experts.bytes);
    EXPECT_EQ(sum_of(seen.generated, {"router"}).macs, matrices_of(executor.file(), "ffn_gate_inp").elements);
  }
}

TEST(Profile, RecurrentLayersReadTheirState) {
  const TempDir folder;
  for (const char* toy : {"mamba", "mamba2"}) {
    const auto path = write_toy(toy, folder.path());
    for (const NamedDevice& named : all_devices()) {
      SCOPED_TRACE(named.name + " " + toy);
      Executor executor(GgufFile::open(path), *named.device, {.context = 48});
      const Profiles seen = profiles_of(executor);
      // Mamba-1's projections to dt, B and C are weights; `reference` counts them with the scan.
      const std::uint64_t projections =
          matrices_of(executor.file(), "ssm_x.").bytes + matrices_of(executor.file(), "ssm_dt.weight").bytes;
      const OpTime middle = sum_of(seen.generated, {"conv", "scan", "scan inputs"});
      EXPECT_EQ(middle.bytes, executor.observe().state_bytes + projections);
      EXPECT_EQ(sum_of(seen.generated, {"ssm in"}).bytes, matrices_of(executor.file(), "ssm_in").bytes);
      EXPECT_EQ(sum_of(seen.generated, {"ssm out"}).bytes, matrices_of(executor.file(), "ssm_out").bytes);
    }
  }
}

}  // namespace
}  // namespace quarrel::test
