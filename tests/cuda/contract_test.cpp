// What a backend promises beside numbers: tokens that the next step reads before anybody saw them, and that penalties
// count, graphs that change no bit, samplers on the host, copies of blocks and of recurrent state.
#include <algorithm>
#include <array>
#include <cstring>
#include <map>

#include "backend/reference/reference_backend.h"
#include "cuda/cuda_test.h"
#include "support/golden.h"
#include "support/sequences.h"
#include "support/temp_dir.h"
#include "support/toy_model.h"

namespace quarrel::test {
namespace {

constexpr std::int32_t kTexts = 3;
constexpr int kSteps = 14;  // enough that their graph is captured and replayed

std::vector<TokenId> prompt_of(std::int32_t text) {
  std::vector<TokenId> tokens;
  for (std::int32_t i = 0; i < 3 + 4 * text; ++i) tokens.push_back((i * i * 7 + i * 31 + text * 53) % 250);
  return tokens;
}

// Three texts as steps by hand: a prompt each, then a token a step.
struct Sampling {
  std::array<SamplingParams, kTexts> params = {};
  std::vector<std::uint64_t> mask = {};  // of the last text
};

class ByHand {
 public:
  ByHand(LoneModel& model, const Sampling& sampling) : model_(model), params_(sampling.params), mask_(sampling.mask) {
    for (std::size_t s = 0; s < kTexts; ++s) {
      for (std::int32_t entry = 0; entry < 4; ++entry) {
        blocks_[s].push_back(4 * static_cast<std::int32_t>(s) + entry);
      }
      tables_[s] = {{.blocks = blocks_[s]}};
    }
  }

  // Every text has its prompt, or the token given (or ~r).
  Ticket submit(std::span<const TokenId> tokens, bool begins) {
    rows_.clear();
    sequences_.clear();
    outputs_.clear();
    starts_.clear();
    for (std::int32_t s = 0; s < kTexts; ++s) {
      const auto at = static_cast<std::size_t>(s);
      const std::vector<TokenId> prompt = prompt_of(s);
      const std::int32_t count = begins ? static_cast<std::int32_t>(prompt.size()) : 1;
      for (std::int32_t i = 0; i < count; ++i) {
        rows_.push_back({.sequence = s,
                         .position = lengths_[at] + i,
                         .token = begins ? prompt[static_cast<std::size_t>(i)] : tokens[at]});
      }
      lengths_[at] += count;
      sequences_.push_back({.tables = tables_[at], .length = lengths_[at]});
      outputs_.push_back({.row = static_cast<std::int32_t>(rows_.size()) - 1, .logits = s == 1, .lane = s});
      if (s + 1 == kTexts) outputs_.back().mask = mask_;
      if (begins) starts_.push_back({.lane = s, .sampling = &params_[at]});
    }
    return model_.backend().submit({.rows = rows_,
                                    .generated_rows = begins ? 0 : kTexts,
                                    .sequences = sequences_,
                                    .outputs = outputs_,
                                    .lane_starts = starts_},
                                   model_.forward());
  }

 private:
  LoneModel& model_;
  std::array<SamplingParams, kTexts> params_;
  std::vector<std::uint64_t> mask_;
  std::array<std::int32_t, kTexts> lengths_ = {};
  std::array<std::vector<std::int32_t>, kTexts> blocks_;
  std::array<std::vector<BlockTable>, kTexts> tables_;
  std::vector<StepRow> rows_;
  std::vector<StepSequence> sequences_;
  std::vector<StepOutput> outputs_;
  std::vector<LaneStart> starts_;
};

void take(const StepResults& results, std::vector<float>& numbers) {
  for (const SampleResult& sample : results.samples) {
    numbers.push_back(static_cast<float>(sample.id));
    numbers.push_back(sample.logprob);
  }
  numbers.insert(numbers.end(), results.logits.begin(), results.logits.end());
}

std::vector<float> one_at_a_time(LoneModel& model, const Sampling& sampling) {
  ByHand by_hand(model, sampling);
  std::vector<float> numbers;
  std::vector<TokenId> tokens(kTexts);
  for (int step = 0; step < kSteps; ++step) {
    const StepResults results = model.backend().wait(by_hand.submit(tokens, step == 0));
    take(results, numbers);
    for (std::size_t s = 0; s < kTexts; ++s) tokens[s] = results.samples[s].id;
  }
  return numbers;
}

std::vector<float> two_in_flight(LoneModel& model, const Sampling& sampling) {
  ByHand by_hand(model, sampling);
  std::vector<float> numbers;
  const std::array<TokenId, kTexts> before = {~0, ~1, ~2};
  Ticket open = by_hand.submit(before, true);
  for (int step = 1; step < kSteps; ++step) {
    const Ticket next = by_hand.submit(before, false);
    take(model.backend().wait(open), numbers);
    open = next;
  }
  take(model.backend().wait(open), numbers);
  return numbers;
}

std::vector<TokenId> ids_of(const std::vector<float>& numbers, std::size_t vocabulary) {
  std::vector<TokenId> ids;
  const std::size_t step = 2 * kTexts + vocabulary;
  for (std::size_t at = 0; at < numbers.size(); at += step) {
    for (std::size_t s = 0; s < kTexts; ++s) ids.push_back(static_cast<TokenId>(numbers[at + 2 * s]));
  }
  return ids;
}

class CudaSteps : public CudaTest {
 protected:
  std::filesystem::path toy(QuantType type, std::uint32_t head) {
    return write_toy(
        "llama", folder_.path(),
        {.type = type, .embedding = 256, .feed_forward = 512, .heads = 4, .kv_heads = 2, .head = head, .rotary = head});
  }
  TempDir folder_;
};

TEST_F(CudaSteps, TwoInFlightAndGraphsChangeNoBit) {
  const Sampling greedy;
  Sampling mixed;
  mixed.params[0] = {.temperature = 0.9f, .seed = 3};
  mixed.params[1] = {.temperature = 0.8f, .mirostat = true, .seed = 4};
  mixed.params[2] = {.temperature = 1.0f, .repeat_penalty = 1.3f, .penalty_window = 4, .seed = 5};
  Sampling filtered;  // all on the device
  filtered.params[0] = {.temperature = 0.7f, .top_k = 40, .top_p = 0.95f, .min_p = 0.05f, .seed = 6};
  filtered.params[1] = {.temperature = 1.2f, .top_k = 200, .seed = 7};
  filtered.params[2] = {.temperature = 0.9f, .top_k = 8, .top_p = 0.6f, .seed = 8};
  Sampling changed;  // those whose logits nobody asked for on the device
  changed.params[0] = {.presence_penalty = 0.7f, .frequency_penalty = 0.4f, .logit_bias = {{3, 4.0f}, {9, -2.0f}}};
  changed.params[1] = {.temperature = 0.7f, .top_k = 30, .frequency_penalty = 0.5f, .seed = 9};
  changed.params[2] = {.temperature = 0.8f,
                       .top_k = 40,
                       .repeat_penalty = 1.4f,
                       .presence_penalty = 0.3f,
                       .penalty_scope = PenaltyScope::recent,
                       .penalty_window = 3,
                       .seed = 10};
  Sampling rare;
  rare.params[0] = {.temperature = 0.9f, .mirostat = true, .mirostat_tau = 3.0f, .seed = 11};
  rare.params[1] = {.temperature = 1.1f, .typical_p = 0.7f, .seed = 12};
  rare.params[2] = {
      .temperature = 0.8f, .top_k = 100, .top_p = 0.9f, .typical_p = 0.9f, .frequency_penalty = 0.5f, .seed = 13};
  changed.mask = {0x0f0f'0f0f'0f0f'0f0fu, 0x00ff'00ff'00ff'00ffu, 0x1234'5678'9abc'def0u, 0xffffu, 0x5555u};
  const auto reference_device = make_reference_device({});
  for (const QuantType type : {QuantType::f32, QuantType::q4_k, QuantType::q8_0}) {
    for (const std::uint32_t head : {32u, 64u}) {
      for (const Sampling& sampling : {greedy, mixed, filtered, changed, rare}) {
        const auto& params = sampling.params;
        SCOPED_TRACE(testing::Message() << type_info(type).name << ", heads of " << head << ", "
                                        << (params[1].temperature > 0.0f ? "some drawn" : "greedy"));
        const auto file = toy(type, head);
        const LoneModel::Options options{.kv_type = KvType::f16};
        LoneModel plain(GgufFile::open(file), *cuda_, options);
        const std::vector<float> expected = one_at_a_time(plain, sampling);
        LoneModel late(GgufFile::open(file), *cuda_, options);
        EXPECT_EQ(two_in_flight(late, sampling), expected);
        EXPECT_EQ(two_in_flight(late, sampling), expected) << "from graphs alone";
        LoneModel unreplayed(GgufFile::open(file), *cuda_, {.kv_type = KvType::f16, .backend = {.graphs = false}});
        EXPECT_EQ(two_in_flight(unreplayed, sampling), expected) << "without graphs";
        // Other arithmetic may draw another token, where the random number falls between two.
        if (type != QuantType::f32 && params[1].temperature > 0.0f) continue;
        LoneModel reference(GgufFile::open(file), *reference_device, options);
        const auto vocabulary = static_cast<std::size_t>(plain.model().spec().vocabulary);
        EXPECT_EQ(ids_of(expected, vocabulary), ids_of(one_at_a_time(reference, sampling), vocabulary));
      }
    }
  }
}

TEST_F(CudaSteps, ScoresAndVectorsAreThoseOfTheReference) {
  const auto reference_device = make_reference_device({});
  const auto file = toy(QuantType::f32, 64);
  std::array<std::vector<float>, 2> numbers;
  std::size_t which = 0;
  for (Device* device : {cuda_.get(), reference_device.get()}) {
    LoneModel model(GgufFile::open(file), *device, {.kv_type = KvType::f16});
    Sequences texts(model);
    TestSequence text = texts.make();
    std::vector<float> vector(static_cast<std::size_t>(model.model().spec().width));
    const std::vector<TokenId> tokens = prompt_of(5);
    const std::array wants = {Want{.index = 3, .score = 17}, Want{.index = 4, .vector = vector.data()},
                              Want{.index = 20, .score = 99, .top = 3}};
    for (const SampleResult& sample : texts.run_chunked({.sequence = &text, .tokens = tokens, .wants = wants})) {
      numbers[which].push_back(sample.logprob);
      for (const TokenLogprob& top : sample.top) numbers[which].push_back(top.logprob);
    }
    numbers[which].insert(numbers[which].end(), vector.begin(), vector.end());
    ++which;
  }
  ASSERT_EQ(numbers[0].size(), numbers[1].size());
  for (std::size_t i = 0; i < numbers[0].size(); ++i) EXPECT_NEAR(numbers[0][i], numbers[1][i], 2e-3) << i;
}

TEST_F(CudaSteps, BlocksTravelAndAreCopied) {
  const auto file = toy(QuantType::q8_0, 64);
  LoneModel model(GgufFile::open(file), *cuda_, {.kv_type = KvType::f16});
  Backend& backend = model.backend();
  const std::size_t bytes = backend.kv_bytes(model.model().kv_groups().front(), KvType::f16);
  std::vector<std::byte> in(bytes);
  for (std::size_t i = 0; i < bytes; ++i) in[i] = static_cast<std::byte>(i * 7 % 251);
  backend.await_transfer(backend.start_import_block(0, 2, in));
  const std::array copies = {BlockCopy{.group = 0, .from = 2, .to = 5}};
  backend.wait(backend.submit({.block_copies = copies}, model.forward()));
  std::vector<std::byte> out(bytes);
  const Ticket ticket = backend.start_export_block(0, 5, out);
  backend.await_transfer(ticket);
  EXPECT_TRUE(backend.transfer_done(ticket));
  EXPECT_EQ(out, in);
  EXPECT_THROW(backend.start_export_block(0, 1000, out), Error);
}

// Recurrent state: kept after every row that asks for it, copied, taken out and brought back.
TEST_F(CudaSteps, SlotsTravelAndAreCopied) {
  const auto file = write_toy("nemotron_h", folder_.path());
  const auto reference_device = make_reference_device({});
  std::array<std::vector<std::vector<std::byte>>, 2> states;
  std::size_t which = 0;
  for (Device* device : {cuda_.get(), reference_device.get()}) {
    LoneModel model(GgufFile::open(file), *device, {.sequences = 6, .kv_type = KvType::f32});
    Backend& backend = model.backend();
    const std::size_t bytes = backend.state_bytes(model.model().state_layers());
    const std::vector<TokenId> tokens = prompt_of(6);
    std::vector<StepRow> rows;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      rows.push_back({.sequence = 0, .position = static_cast<std::int32_t>(i), .token = tokens[i]});
    }
    std::vector<std::int32_t> blocks(4);
    for (std::size_t i = 0; i < blocks.size(); ++i) blocks[i] = static_cast<std::int32_t>(i);
    const std::array tables = {BlockTable{.blocks = blocks}};
    std::array sequences = {
        StepSequence{.tables = tables, .length = static_cast<std::int32_t>(rows.size()), .state_out = 1}};
    const std::array snapshots = {StateSnapshot{.row = 0, .slot = 2}, StateSnapshot{.row = 17, .slot = 3}};
    backend.wait(backend.submit({.rows = rows, .sequences = sequences, .snapshots = snapshots}, model.forward()));
    const std::array copies = {SlotCopy{.from = 1, .to = 4}};
    backend.wait(backend.submit({.slot_copies = copies}, model.forward()));
    const auto exported = [&](std::int32_t slot) {
      std::vector<std::byte> state(bytes);
      backend.await_transfer(backend.start_export_slot(slot, state));
      return state;
    };
    for (const std::int32_t slot : {1, 2, 3}) states[which].push_back(exported(slot));
    EXPECT_EQ(exported(4), states[which][0]);
    backend.await_transfer(backend.start_import_slot(5, states[which][2]));
    EXPECT_EQ(exported(5), states[which][2]);
    // A text that goes on from a snapshot, in the slot that it is read from.
    sequences[0].state_in = sequences[0].state_out = 5;
    backend.wait(backend.submit({.rows = std::span(rows).subspan(18), .sequences = sequences}, model.forward()));
    states[which].push_back(exported(5));
    EXPECT_THROW(backend.start_export_slot(1000, states[which][0]), Error);
    ++which;
  }
  for (std::size_t i = 0; i < states[0].size(); ++i) {
    const auto numbers = [](const std::vector<std::byte>& bytes) {
      std::vector<float> values(bytes.size() / sizeof(float));
      std::memcpy(values.data(), bytes.data(), bytes.size());
      return values;
    };
    EXPECT_LE(nmse(numbers(states[0][i]), numbers(states[1][i])), 1e-9) << "state " << i;
  }
}

// By the same rules as everywhere.
TEST_F(CudaSteps, AProfileCountsTheWorkThatTheReferenceCounts) {
  const auto file = write_toy("granitehybrid", folder_.path());
  const auto reference_device = make_reference_device({});
  std::array<std::map<std::string, OpTime>, 2> profiles;
  std::size_t which = 0;
  for (Device* device : {cuda_.get(), reference_device.get()}) {
    LoneModel model(GgufFile::open(file), *device, {.kv_type = KvType::f32});
    model.backend().set_profiling(true);
    Sequences texts(model);
    TestSequence text = texts.make();
    const std::vector<TokenId> tokens = prompt_of(4);
    const Want last{.index = static_cast<std::int32_t>(tokens.size()) - 1, .score = 0};
    texts.run_chunked({.sequence = &text, .tokens = tokens, .wants = {&last, 1}}, 64);
    for (const OpTime& op : model.backend().profile()) profiles[which][std::string(op.name)] = op;
    ++which;
  }
  for (const char* name : {"embedding", "qkv", "attend", "attention out", "router", "shared experts", "head"}) {
    SCOPED_TRACE(name);
    ASSERT_TRUE(profiles[0].contains(name) && profiles[1].contains(name));
    EXPECT_GT(profiles[0][name].bytes, 0u);
    EXPECT_EQ(profiles[0][name].bytes, profiles[1][name].bytes);
    EXPECT_EQ(profiles[0][name].macs, profiles[1][name].macs);
    EXPECT_GT(profiles[0][name].seconds, 0.0);
  }
  EXPECT_EQ(profiles[0]["experts"].macs, profiles[1]["experts"].macs);
}

TEST_F(CudaSteps, ExpertsAreCounted) {
  const auto file = write_toy("mixtral", folder_.path());
  const auto reference_device = make_reference_device({});
  std::array<std::vector<ExpertUse>, 2> uses;
  std::size_t which = 0;
  for (Device* device : {cuda_.get(), reference_device.get()}) {
    LoneModel model(GgufFile::open(file), *device, {});
    Sequences texts(model);
    TestSequence text = texts.make();
    texts.run_chunked({.sequence = &text, .tokens = prompt_of(6)}, 5);
    uses[which++] = model.backend().expert_use();
  }
  ASSERT_EQ(uses[0].size(), uses[1].size());
  for (std::size_t i = 0; i < uses[0].size(); ++i) {
    EXPECT_EQ(uses[0][i].layer, uses[1][i].layer);
    EXPECT_EQ(uses[0][i].chosen, uses[1][i].chosen);
  }
}

TEST_F(CudaSteps, TooLittleMemoryIsASentence) {
  LoneModel model(GgufFile::open(toy(QuantType::f32, 32)), *cuda_, {});
  try {
    model.backend().allocate_cache({.groups = model.model().kv_groups(), .blocks = {1 << 28}});
    FAIL() << "no device has that much";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::out_of_memory);
    EXPECT_NE(std::string(error.what()).find("GB are free"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace quarrel::test
