// One token of a model in the shape of Mistral-7B, Q4_K_M or F16: 32 layers of five kernels and the head, captured once
// and replayed. Random weights; what is checked is that replays, with and without overlap of kernels, agree in every
// bit.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <utility>

#include "backend/cuda/cuda_error.h"
#include "backend/cuda/decode_attention.h"
#include "backend/cuda/gemv.h"
#include "backend/cuda/half_gemv.h"
#include "backend/cuda/repack.h"
#include "backend/cuda/row_ops.h"
#include "backend/cuda/rowwise.h"
#include "base/as_size.h"
#include "cuda/fixture.h"
#include "cuda/random_weights.h"

namespace quarrel::cuda {
namespace {

constexpr int kWidth = 4096;
constexpr int kHeads = 32;
constexpr int kKvHeads = 8;
constexpr int kDim = 128;
constexpr int kFfn = 14336;
constexpr int kVocabulary = 32000;
constexpr int kKvWidth = kKvHeads * kDim;

// Which layers have V and the down projection in Q6_K: the first and last eighth, and every third between.
bool has_more_bits(int layer, int layers) {
  return layer < layers / 8 || layer >= 7 * layers / 8 || (layer - layers / 8) % 3 == 2;
}

// A weight as GEMVs take it, without a place for results.
struct LayerWeights {
  GemvMatrix q, k, v, o, gate, up, down;
};

class DecodeModel {
 public:
  DecodeModel(Fixture& fixture, int layers, int rows, int position, bool halves)
      : rows_(rows), layers_(layers), halves_(halves), arena_(std::size_t{64} << 20, "activations") {
    for (int i = 0; i < layers; ++i) {
      const WeightFormat more = has_more_bits(i, layers) ? WeightFormat::q6_k : WeightFormat::q4_k;
      weights_.push_back({.q = matrix(fixture, WeightFormat::q4_k, kWidth, kWidth),
                          .k = matrix(fixture, WeightFormat::q4_k, kKvWidth, kWidth),
                          .v = matrix(fixture, more, kKvWidth, kWidth),
                          .o = matrix(fixture, WeightFormat::q4_k, kWidth, kWidth),
                          .gate = matrix(fixture, WeightFormat::q4_k, kFfn, kWidth),
                          .up = matrix(fixture, WeightFormat::q4_k, kFfn, kWidth),
                          .down = matrix(fixture, more, kWidth, kFfn)});
    }
    head_ = matrix(fixture, WeightFormat::q6_k, kVocabulary, kWidth);
    const std::size_t multiplied = weight_bytes_;
    embedding_ = matrix(fixture, WeightFormat::q4_k, kVocabulary, kWidth);
    weight_bytes_ = multiplied;
    const int table_blocks = position / kKvBlockTokens + 1;
    block_stride_ = std::int64_t{layers} * kKvHeads * kKvBlockTokens * kDim;
    keys_ = DeviceBuffer(as_size(rows * table_blocks) * static_cast<std::size_t>(block_stride_) * 2, "keys");
    values_ = DeviceBuffer(keys_.size(), "values");
    fill_cache(fixture);
    std::vector<std::int32_t> tables(as_size(rows * table_blocks));
    for (std::size_t i = 0; i < tables.size(); ++i) tables[i] = static_cast<std::int32_t>(i);
    std::vector<std::int32_t> sequences(as_size(rows));
    std::vector<std::int32_t> tokens(as_size(rows));
    for (int i = 0; i < rows; ++i) {
      sequences[as_size(i)] = i;
      tokens[as_size(i)] = 17 * i + 5;
    }
    step_ = {.positions = put(std::vector<std::int32_t>(as_size(rows), position)),
             .sequences = put(sequences),
             .first_new = put(std::vector<std::int32_t>(as_size(rows), position)),
             .tables = put(tables),
             .table_stride = table_blocks,
             .count = rows};
    tokens_ = put(tokens);
    std::vector<double> frequencies;
    for (int i = 0; i < kDim / 2; ++i) frequencies.push_back(std::pow(1e6, -2.0 * i / kDim));
    frequencies_ = put(frequencies);
    norm_ = put(std::vector<float>(kWidth, 1.0f));
    x_ = arena_.take_array<float>(as_size(rows * kWidth));
    q_ = arena_.take_array<float>(as_size(rows * kWidth));
    attended_ = arena_.take_array<float>(as_size(rows * kWidth));
    hidden_ = arena_.take_array<float>(as_size(rows * kFfn));
    logits_ = arena_.take_array<float>(as_size(rows * kVocabulary));
    angles_ = arena_.take_array<float>(as_size(rows * kDim));
    ids_ = arena_.take_array<std::int32_t>(as_size(rows));
    split_ = arena_.take(split_bytes(kFfn, kMaxSplitRows));
    workspace_ = arena_.take(decode_attention_workspace(rows, kHeads, kDim));
    arrivals_ = arena_.take_array<int>(as_size(rows * kKvHeads));
    check(cudaMemset(arrivals_, 0, as_size(rows * kKvHeads) * 4), "arrivals");
  }

  // The whole step, as the layer loop of a backend would launch it.
  void forward(const LaunchContext& context) const {
    if (halves_) {
      look_up_rows(context, embedding_.halves.data, true, kVocabulary, tokens_, 1.0f,
                   {.data = x_, .stride = kWidth, .width = kWidth, .count = rows_});
    } else {
      decode_rows(context, embedding_.weight, tokens_, rows_, 1.0f, x_, kWidth);
    }
    rope_angles(context, step_, frequencies_, kDim / 2, 1.0f, angles_);
    for (int i = 0; i < layers_; ++i) {
      attention(context, i);
      feed_forward(context, i);
    }
    GemvOp head{.name = "head", .input = input(x_, kWidth, NormKind::rms)};
    head.matrices[0] = into(head_, logits_, kVocabulary);
    run(context, head);
    argmax(context, logits_, rows_, kVocabulary, ids_);
  }

  void attention(const LaunchContext& context, int layer) const {
    const LayerWeights& w = weights_[as_size(layer)];
    const std::int64_t layer_offset = std::int64_t{layer} * kKvHeads * kKvBlockTokens * kDim;
    const PagedKv kv{.keys = keys_.as<std::uint16_t>() + layer_offset,
                     .values = values_.as<std::uint16_t>() + layer_offset,
                     .key_block_stride = block_stride_,
                     .value_block_stride = block_stride_,
                     .heads = kKvHeads,
                     .dim = kDim};
    GemvOp qkv{.name = "qkv",
               .input = input(x_, kWidth, NormKind::rms),
               .matrix_count = 3,
               .output = GemvOutput::qkv,
               .qkv = {.rows = step_, .kv = kv, .angles = angles_, .pairs = kDim / 2},
               .follows_small_kernel = layer == 0};
    qkv.matrices[0] = into(w.q, q_, kWidth);
    qkv.matrices[1] = w.k;
    qkv.matrices[2] = w.v;
    run(context, qkv);
    decode_attention(context, {.rows = step_,
                               .kv = kv,
                               .q = q_,
                               .out = attended_,
                               .heads = kHeads,
                               .scale = 1.0f / std::sqrt(static_cast<float>(kDim)),
                               .workspace = workspace_,
                               .arrivals = arrivals_});
    GemvOp o{.name = "o",
             .input = input(attended_, kWidth, NormKind::none),
             .output = GemvOutput::add,
             .follows_small_kernel = true};
    o.matrices[0] = into(w.o, x_, kWidth);
    run(context, o);
  }

  void feed_forward(const LaunchContext& context, int layer) const {
    const LayerWeights& w = weights_[as_size(layer)];
    GemvOp glu{.name = "glu", .input = input(x_, kWidth, NormKind::rms), .matrix_count = 2, .output = GemvOutput::glu};
    glu.matrices[0] = into(w.gate, hidden_, kFfn);
    glu.matrices[1] = w.up;
    run(context, glu);
    GemvOp down{.name = "down", .input = input(hidden_, kFfn, NormKind::none), .output = GemvOutput::add};
    down.matrices[0] = into(w.down, x_, kWidth);
    run(context, down);
  }

  std::vector<float> logits() const { return to_host(logits_, as_size(rows_ * kVocabulary)); }
  std::size_t weight_bytes() const { return weight_bytes_; }  // of all but the embedding, of which only a row is read

 private:
  SplitInput input(const float* rows, int columns, NormKind norm) const {
    return {.rows = rows,
            .stride = columns,
            .columns = columns,
            .count = rows_,
            .norm = norm,
            .epsilon = 1e-5f,
            .norm_weight = norm == NormKind::none ? nullptr : norm_};
  }

  static GemvMatrix into(GemvMatrix matrix, float* out, int stride) {
    matrix.out = out;
    matrix.stride = stride;
    return matrix;
  }

  void run(const LaunchContext& context, const GemvOp& op) const {
    if (halves_) return half_gemv(context, op);
    gemv_in_parts(context, op, split_);
  }

  template <typename T>
  const T* put(const std::vector<T>& values) {
    T* place = arena_.take_array<T>(values.size());
    copy_to_device(place, values.data(), values.size() * sizeof(T));
    return place;
  }

  // Random weights of each shape once, then copies: every layer has memory of its own.
  GemvMatrix matrix(Fixture& fixture, WeightFormat format, int rows, int columns) {
    GemvMatrix made;
    if (halves_) {
      made.halves = add_matrix(half_originals_, rows, columns, [&] {
        RandomHalves random(rows, columns, fixture.random());
        return std::pair(random.dense, std::move(random.memory));
      });
    } else {
      made.weight = add_matrix(originals_[format], rows, columns, [&] {
        RandomMatrix random(format, rows, columns, fixture.random());
        return std::pair(random.packed, std::move(random.memory));
      });
    }
    weight_bytes_ += memory_.back().size();
    return made;
  }

  template <typename Matrix, typename Make>
  Matrix add_matrix(std::vector<Matrix>& originals, int rows, int columns, const Make& make) {
    const auto same = [&](const Matrix& m) { return m.rows == rows && m.columns == columns; };
    const auto known = std::ranges::find_if(originals, same);
    if (known == originals.end()) {
      auto [made, memory] = make();
      originals.push_back(made);
      memory_.push_back(std::move(memory));
      return made;
    }
    memory_.push_back(copy_of(*known));
    Matrix copy = *known;
    copy.data = memory_.back().data();
    return copy;
  }

  void fill_cache(Fixture& fixture) const {
    // Halves around one, the same for all blocks of the cache: attention must find finite numbers there.
    std::vector<std::uint16_t> halves(std::size_t{1} << 20);
    for (std::uint16_t& half : halves) half = static_cast<std::uint16_t>(0x3000u | (fixture.random()() & 0x8fffu));
    for (const DeviceBuffer* buffer : {&keys_, &values_}) {
      for (std::size_t at = 0; at < buffer->size(); at += halves.size() * 2) {
        copy_to_device(buffer->data() + at, halves.data(), std::min(halves.size() * 2, buffer->size() - at));
      }
    }
  }

  int rows_;
  int layers_;
  bool halves_;
  Arena arena_;
  std::vector<LayerWeights> weights_;
  std::map<WeightFormat, std::vector<PackedMatrix>> originals_;
  std::vector<DenseMatrix> half_originals_;
  std::vector<DeviceBuffer> memory_;
  GemvMatrix head_, embedding_;
  std::size_t weight_bytes_ = 0;
  std::int64_t block_stride_ = 0;
  DeviceBuffer keys_, values_;
  StepRows step_;
  const std::int32_t* tokens_ = nullptr;
  const double* frequencies_ = nullptr;
  const float* norm_ = nullptr;
  float *x_, *q_, *attended_, *hidden_, *logits_, *angles_;
  std::int32_t* ids_;
  std::byte *split_, *workspace_;
  int* arrivals_;
};

void time_model(Fixture& fixture, int layers, int rows, int position, bool halves = false) {
  const DecodeModel model(fixture, layers, rows, position, halves);
  model.forward(fixture.context_without_overlap());
  const auto apart = model.logits();
  const bool finite = std::ranges::all_of(apart, [](float x) { return std::isfinite(x); });
  bool same = true;
  for (int i = 0; i < 3; ++i) {
    model.forward(fixture.context());
    const auto overlapped = model.logits();
    same = same && std::memcmp(apart.data(), overlapped.data(), apart.size() * 4) == 0;
  }
  const char* type = halves ? "F16" : "Q4_K_M";
  const std::string name = fmt::format("{} layers of {}, {} rows, context {}", layers, type, rows, position + 1);
  fixture.check(name, finite, "finite");
  fixture.check(name + ", overlapped", same, "the same bits");
  if (!fixture.times()) return;
  const auto whole = [&](int, const LaunchContext& context) { model.forward(context); };
  const double overlapped = fixture.microseconds(1, fixture.context(), whole, 15);
  const double apart_time = fixture.microseconds(1, fixture.context_without_overlap(), whole, 15);
  const double attention_apart =
      fixture.microseconds(layers, fixture.context_without_overlap(),
                           [&](int i, const LaunchContext& context) { model.attention(context, i); });
  const double feed_forward_apart =
      fixture.microseconds(layers, fixture.context_without_overlap(),
                           [&](int i, const LaunchContext& context) { model.feed_forward(context, i); });
  const double attention = fixture.microseconds(
      layers, fixture.context(), [&](int i, const LaunchContext& context) { model.attention(context, i); });
  const double feed_forward = fixture.microseconds(
      layers, fixture.context(), [&](int i, const LaunchContext& context) { model.feed_forward(context, i); });
  fixture.report_bytes(fmt::format("7B {} {} layers, {} rows, context {}: {:.0f} tokens/s", type, layers, rows,
                                   position + 1, rows * 1e6 / overlapped),
                       overlapped, static_cast<double>(model.weight_bytes()));
  fixture.report(
      fmt::format("  without overlap {:.1f} us ({:.0f} tokens/s); a layer's attention {:.2f} us (without {:.2f}), "
                  "feed-forward {:.2f} us (without {:.2f})",
                  apart_time, rows * 1e6 / apart_time, attention, attention_apart, feed_forward, feed_forward_apart));
}

}  // namespace

void test_layer(Fixture& fixture) {
  prepare_gemv(fixture.context());
  prepare_half_gemv(fixture.context());
  prepare_decode_attention(fixture.context());
  if (!fixture.times()) {
    time_model(fixture, 2, 1, 200);
    time_model(fixture, 2, 7, 70);
    time_model(fixture, 2, 1, 200, true);
    time_model(fixture, 2, 7, 70, true);
    return;
  }
  time_model(fixture, 32, 1, 255);
  time_model(fixture, 32, 4, 255);
  time_model(fixture, 32, 8, 255);
  time_model(fixture, 32, 16, 255);
  time_model(fixture, 32, 1, 16383);
  time_model(fixture, 32, 1, 255, true);
  time_model(fixture, 32, 2, 255, true);
  time_model(fixture, 32, 4, 255, true);
}

}  // namespace quarrel::cuda
