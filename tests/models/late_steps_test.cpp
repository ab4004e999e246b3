// Whole models on a device that pads its steps, runs them on a thread of its own and answers late: every bit must be
// that of the plain device, also with two steps in flight.
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "backend/create.h"
#include "support/late_device.h"
#include "support/sanitized.h"
#include "support/sequences.h"
#include "support/temp_dir.h"
#include "support/toy_model.h"

namespace quarrel::test {
namespace {

std::vector<TokenId> tokens_of(std::int32_t count, std::int32_t salt) {
  std::vector<TokenId> tokens;
  for (std::int32_t i = 0; i < count; ++i) tokens.push_back((i * i * 7 + i * 31 + salt * 53) % 250);
  return tokens;
}

std::vector<DeviceOptions> inner_devices() {
  return {{.backend = "reference", .threads = 1}, {.backend = "cpu", .threads = 2}};
}

// Everything that came of a few steps, as one list of numbers to compare.
class Record {
 public:
  explicit Record(LoneModel& model) : model_(model), sequences_(model) {}

  void run(std::vector<Feed> feeds, const std::vector<std::vector<Want>>& wants) {
    const auto width = static_cast<std::size_t>(model_.model().spec().width);
    const auto vocabulary = static_cast<std::size_t>(model_.model().spec().vocabulary);
    std::vector<std::vector<Want>> placed = wants;
    std::vector<std::vector<float>> memory;
    const auto room = [&](std::size_t count) { return memory.emplace_back(count).data(); };
    for (std::vector<Want>& of_feed : placed) {
      for (Want& want : of_feed) {
        if (want.logits != nullptr) want.logits = room(vocabulary);
        if (want.vector != nullptr) want.vector = room(width);
        if (want.pooled != nullptr) want.pooled = room(width);
      }
    }
    for (std::size_t i = 0; i < feeds.size(); ++i) feeds[i].wants = placed[i];
    for (const SampleResult& sample : sequences_.run(feeds)) {
      numbers.push_back(static_cast<float>(sample.id));
      numbers.push_back(sample.logprob);
      numbers.push_back(static_cast<float>(sample.top.size()));
      for (const TokenLogprob& top : sample.top) numbers.push_back(top.logprob);
    }
    for (const std::vector<float>& values : memory) numbers.insert(numbers.end(), values.begin(), values.end());
  }
  Sequences& sequences() { return sequences_; }

  std::vector<float> numbers;

 private:
  LoneModel& model_;
  Sequences sequences_;
};

// Prompts and generated rows in steps of uneven sizes, with all that a step can be asked for.
std::vector<float> decoder_record(LoneModel& model) {
  Record record(model);
  float yes = 0.0f;  // "this is wanted"
  const SamplingParams warm{.temperature = 0.9f, .repeat_penalty = 1.2f, .seed = 5};
  const auto a = tokens_of(21, 1), b = tokens_of(13, 2), c = tokens_of(9, 3);
  TestSequence first = record.sequences().make(), second = record.sequences().make(), third = record.sequences().make();
  const auto part = [](const std::vector<TokenId>& text, std::size_t at, std::size_t count) {
    return std::span(text).subspan(at, count);
  };
  record.run({{.sequence = &first, .tokens = part(a, 0, 5)}, {.sequence = &second, .tokens = part(b, 0, 11)}},
             {{{.index = 2, .vector = &yes}, {.index = 4, .sampling = &warm, .top = 3}},
              {{.index = 0, .logits = &yes}, {.index = 10, .score = 17}}});
  record.run({{.sequence = &first, .tokens = part(a, 5, 1), .row_class = RowClass::generated},
              {.sequence = &second, .tokens = part(b, 11, 2), .row_class = RowClass::generated},
              {.sequence = &third, .tokens = part(c, 0, 7), .pooling = Pooling::mean}},
             {{{.index = 0, .sampling = &warm}}, {{.index = 0, .logits = &yes}, {.index = 1, .vector = &yes}}, {}});
  record.run({{.sequence = &first, .tokens = part(a, 6, 15)},
              {.sequence = &third, .tokens = part(c, 7, 2), .pooling = Pooling::mean}},
             {{{.index = 14, .logits = &yes, .sampling = &warm}}, {{.index = 1, .pooled = &yes}}});
  return record.numbers;
}

std::vector<float> encoder_record(LoneModel& model) {
  Record record(model);
  float yes = 0.0f;
  const auto a = tokens_of(21, 1), b = tokens_of(13, 2), c = tokens_of(9, 3);
  for (const Pooling pooling : {Pooling::mean, Pooling::cls, Pooling::last}) {
    TestSequence first = record.sequences().make(), second = record.sequences().make();
    TestSequence third = record.sequences().make();
    record.run({{.sequence = &first, .tokens = a, .pooling = pooling},
                {.sequence = &second, .tokens = b, .pooling = pooling},
                {.sequence = &third, .tokens = c}},
               {{{.index = 20, .pooled = &yes}},
                {{.index = 3, .vector = &yes}, {.index = 12, .pooled = &yes}},
                {{.index = 0, .vector = &yes}}});
    for (TestSequence* sequence : {&first, &second, &third}) record.sequences().truncate(*sequence, 0);
  }
  return record.numbers;
}

class LateSteps : public testing::TestWithParam<std::string_view> {};

TEST_P(LateSteps, PaddingChangesNoBit) {
  const TempDir folder;
  const auto path = write_toy(GetParam(), folder.path());
  for (const DeviceOptions& options : inner_devices()) {
    SCOPED_TRACE(options.backend);
    const auto plain_device = make_device(options);
    const auto late_device = make_late_device(options, {.delay = std::chrono::microseconds(0)});
    LoneModel plain(GgufFile::open(path), *plain_device, {});
    LoneModel late(GgufFile::open(path), *late_device, {});
    const auto record = plain.model().needs_whole_text() ? encoder_record : decoder_record;
    const std::vector<float> expected = record(plain);
    EXPECT_GT(expected.size(), 100u);
    EXPECT_EQ(record(late), expected);
    EXPECT_EQ(late.backend().counters().kv_saturated, plain.backend().counters().kv_saturated);
    const auto use = plain.backend().expert_use();
    const auto late_use = late.backend().expert_use();
    ASSERT_EQ(late_use.size(), use.size());
    for (std::size_t i = 0; i < use.size(); ++i) EXPECT_EQ(late_use[i].chosen, use[i].chosen) << "padding has experts";
  }
}

// Kernels for quantised weights choose their way by the number of rows, which padding changes.
TEST(LateQuantised, PaddingChangesNoBit) {
  const TempDir folder;
  std::istringstream names(available_isa_levels());
  std::vector<std::string> levels;
  for (std::string name; names >> name;) levels.push_back(name);
  for (const char* toy : {"llama", "mixtral", "mamba"}) {
    for (const QuantType type : {QuantType::q8_0, QuantType::q4_k, QuantType::bf16}) {
      const ToyOptions options{.type = type, .embedding = type == QuantType::q4_k ? std::optional(256u) : std::nullopt};
      const auto path = write_toy(toy, folder.path(), options);
      for (const std::string& level : levels) {
        for (const auto activations : {ActivationPrecision::outlier_groups, ActivationPrecision::f32,
                                       ActivationPrecision::int8_split, ActivationPrecision::int8}) {
          if (kSanitized && activations == ActivationPrecision::int8_split) break;
          SCOPED_TRACE(testing::Message()
                       << toy << " " << type_info(type).name << " " << level << " " << static_cast<int>(activations));
          const DeviceOptions device{.backend = "cpu", .threads = 2, .isa = level};
          const auto plain_device = make_device(device);
          const auto late_device = make_late_device(device, {.delay = std::chrono::microseconds(0)});
          LoneModel plain(GgufFile::open(path), *plain_device, {.backend = {.activations = activations}});
          LoneModel late(GgufFile::open(path), *late_device, {.backend = {.activations = activations}});
          EXPECT_EQ(decoder_record(late), decoder_record(plain));
        }
      }
    }
  }
}

// Two sequences of a model as steps by hand: a prompt each, then a token a step.
class ByHand {
 public:
  explicit ByHand(LoneModel& model) : model_(model) {
    const std::size_t groups = model.model().kv_groups().size();
    for (std::int32_t s = 0; s < 3; ++s) {
      for (std::int32_t entry = 0; entry < 4; ++entry) blocks_[s].push_back(4 * s + entry);
      for (std::size_t group = 0; group < groups; ++group) tables_[s].push_back({.blocks = blocks_[s]});
    }
  }

  // One step: sequence s has its prompt if it has no text yet, or the token given (or ~r).
  Ticket submit(std::span<const TokenId> tokens, bool begins) {
    rows_.clear();
    sequences_.clear();
    outputs_.clear();
    starts_.clear();
    const bool recurrent = !model_.model().state_layers().empty();
    for (std::int32_t s = 0; s < 3; ++s) {
      const std::vector<TokenId> prompt = tokens_of(3 + 4 * s, s);
      const std::int32_t count = begins ? static_cast<std::int32_t>(prompt.size()) : 1;
      for (std::int32_t i = 0; i < count; ++i) {
        rows_.push_back({.sequence = s,
                         .position = lengths_[s] + i,
                         .token = begins ? prompt[static_cast<std::size_t>(i)] : tokens[static_cast<std::size_t>(s)]});
      }
      lengths_[s] += count;
      sequences_.push_back({.tables = tables_[s],
                            .length = lengths_[s],
                            .state_in = recurrent && !begins ? s : -1,
                            .state_out = recurrent ? s : -1});
      outputs_.push_back({.row = static_cast<std::int32_t>(rows_.size()) - 1, .logits = s == 1, .lane = s});
      if (begins) starts_.push_back({.lane = s, .sampling = &params_[s]});
    }
    return model_.backend().submit({.rows = rows_,
                                    .generated_rows = begins ? 0 : 3,
                                    .sequences = sequences_,
                                    .outputs = outputs_,
                                    .lane_starts = starts_},
                                   model_.forward());
  }
  void take(const StepResults& results, std::vector<float>& numbers) {
    for (const SampleResult& sample : results.samples) {
      numbers.push_back(static_cast<float>(sample.id));
      numbers.push_back(sample.logprob);
    }
    numbers.insert(numbers.end(), results.logits.begin(), results.logits.end());
  }

 private:
  LoneModel& model_;
  SamplingParams params_[3] = {{.temperature = 1.0f, .frequency_penalty = 0.5f, .seed = 3},
                               {.temperature = 0.8f, .mirostat = true, .seed = 4},
                               {.temperature = 1.0f, .repeat_penalty = 1.3f, .penalty_window = 4, .seed = 5}};
  std::int32_t lengths_[3] = {};
  std::vector<std::int32_t> blocks_[3];
  std::vector<BlockTable> tables_[3];
  std::vector<StepRow> rows_;
  std::vector<StepSequence> sequences_;
  std::vector<StepOutput> outputs_;
  std::vector<LaneStart> starts_;
};

constexpr int kSteps = 12;

std::vector<float> one_at_a_time(LoneModel& model) {
  ByHand by_hand(model);
  std::vector<float> numbers;
  std::vector<TokenId> tokens(3);
  for (int step = 0; step < kSteps; ++step) {
    const StepResults results = model.backend().wait(by_hand.submit(tokens, step == 0));
    by_hand.take(results, numbers);
    for (std::size_t s = 0; s < 3; ++s) tokens[s] = results.samples[s].id;
  }
  return numbers;
}

std::vector<float> two_in_flight(LoneModel& model) {
  ByHand by_hand(model);
  std::vector<float> numbers;
  const std::vector<TokenId> before = {~0, ~1, ~2};
  Ticket open = by_hand.submit(before, true);
  for (int step = 1; step < kSteps; ++step) {
    const Ticket next = by_hand.submit(before, false);
    by_hand.take(model.backend().wait(open), numbers);
    open = next;
  }
  by_hand.take(model.backend().wait(open), numbers);
  return numbers;
}

TEST_P(LateSteps, TwoStepsInFlightChangeNoBit) {
  const TempDir folder;
  const auto path = write_toy(GetParam(), folder.path());
  for (const DeviceOptions& options : inner_devices()) {
    SCOPED_TRACE(options.backend);
    const auto plain_device = make_device(options);
    LoneModel plain(GgufFile::open(path), *plain_device, {});
    if (!plain.model().spec().has_head) GTEST_SKIP() << "an encoder has no tokens";
    const std::vector<float> expected = one_at_a_time(plain);
    LoneModel again(GgufFile::open(path), *plain_device, {});
    EXPECT_EQ(two_in_flight(again), expected);
    const auto late_device = make_late_device(options);
    LoneModel late(GgufFile::open(path), *late_device, {});
    EXPECT_EQ(two_in_flight(late), expected);
  }
}

INSTANTIATE_TEST_SUITE_P(Toys, LateSteps, testing::ValuesIn(toy_names().begin(), toy_names().end()),
                         [](const auto& param) {
                           std::string name(param.param);
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace quarrel::test
