#include "backend/cuda/weight_store.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "backend/cuda/repack.h"
#include "base/as_size.h"
#include "base/error.h"
#include "quant/blocks.h"
#include "quant/decode.h"
#include "quant/half.h"

namespace quarrel::cuda {
namespace {

constexpr float kLargestF16 = 65504.0f;

std::size_t count_of(std::int64_t value) { return static_cast<std::size_t>(value); }

void check_source(const WeightSource& source, bool plan_only) {
  const TypeInfo& info = type_info(source.type);
  const auto fits = [](std::int64_t value) { return value >= 1 && value <= std::numeric_limits<std::int32_t>::max(); };
  const bool many = is_expert(source.role) || source.role == WeightRole::vector;
  const bool experts_fit = many ? fits(source.experts) && fits(source.experts * source.rows) : source.experts == 1;
  if (!fits(source.rows) || !fits(source.columns) || !experts_fit ||
      source.columns % std::int64_t{info.block_weights} != 0) {
    fail(ErrorKind::unsupported, "weight {} of type {} and shape [{}, {}, {}] cannot be used", source.name, info.name,
         source.columns, source.rows, source.experts);
  }
  const std::size_t row = row_bytes(info, count_of(source.columns));
  if (source.row_stride != 0 && source.row_stride < row) {
    fail(ErrorKind::unsupported, "rows of weight {} cannot lie {} bytes apart", source.name, source.row_stride);
  }
  if (!source.places.empty() && std::cmp_not_equal(source.places.size(), source.experts)) {
    fail(ErrorKind::unsupported, "weight {} has places for {} of {} experts", source.name, source.places.size(),
         source.experts);
  }
  if (source.data == nullptr && source.places.empty() && !plan_only) {
    fail(ErrorKind::unsupported, "weight {} has no memory", source.name);
  }
}

std::size_t stride_of(const WeightSource& source) {
  return source.row_stride != 0 ? source.row_stride : row_bytes(type_info(source.type), count_of(source.columns));
}

const std::byte* data_of(const WeightSource& source, std::int64_t expert = 0) {
  if (!source.places.empty()) return source.places[count_of(expert)].data;
  return source.data + count_of(expert * source.rows) * stride_of(source);
}

// Whether all rows of all experts lie one behind the other.
bool is_one_piece(const WeightSource& source) {
  const std::size_t row = row_bytes(type_info(source.type), count_of(source.columns));
  if (stride_of(source) != row) return false;
  for (std::int64_t expert = 1; expert < source.experts; ++expert) {
    if (data_of(source, expert) != data_of(source) + count_of(expert * source.rows) * row) return false;
  }
  return true;
}

}  // namespace

WeightStore::WeightStore(Options options) : options_(std::move(options)) {}

WeightUploader& WeightStore::uploader() {
  if (!uploader_) uploader_ = std::make_unique<WeightUploader>(options_.device);
  return *uploader_;
}

DeviceBuffer WeightStore::allocate(std::size_t bytes, const char* purpose) {
  prepared_bytes_ += aligned(bytes);
  return options_.plan_only ? DeviceBuffer() : DeviceBuffer(bytes, purpose);
}

Weight WeightStore::add(const WeightSource& source) {
  check_source(source, options_.plan_only);
  StoredWeight weight;
  const bool expert = is_expert(source.role);
  if (source.role == WeightRole::vector) {
    add_vector(source, weight);
  } else {
    const auto format = weight_format(source.type);
    if (format && (expert || *format != WeightFormat::mxfp4)) {
      add_packed(source, *format, weight);
    } else {
      add_dense(source, weight);
    }
    const int rows = static_cast<int>(source.rows);
    const int columns = static_cast<int>(source.columns);
    if (expert) {
      widest_expert_ = std::max({widest_expert_, rows, columns});
      experts_used_ = std::max(experts_used_, source.experts_used);
      most_experts_ = std::max(most_experts_, static_cast<int>(source.experts));
      note_layer(source);
    } else {
      const bool logits = source.role == WeightRole::embedding || source.role == WeightRole::head;
      if (!logits) widest_output_ = std::max(widest_output_, rows);
    }
    // Rows that go to experts are made ready as those for other matrices are.
    if (source.role != WeightRole::expert_row) widest_input_ = std::max(widest_input_, columns);
    released_bytes_ +=
        count_of(source.experts * source.rows) * row_bytes(type_info(source.type), count_of(source.columns));
    if (!options_.plan_only && options_.on_uploaded) options_.on_uploaded(released_bytes_);
  }
  weights_.push_back(std::move(weight));
  return {.id = static_cast<std::int32_t>(weights_.size()) - 1,
          .rows = static_cast<std::int32_t>(source.rows),
          .columns = static_cast<std::int32_t>(source.columns),
          .experts = static_cast<std::int32_t>(source.experts)};
}

void WeightStore::note_layer(const WeightSource& source) {
  if (std::ranges::find(expert_layers_, source.layer) != expert_layers_.end()) return;
  expert_layers_.push_back(source.layer);
  layer_experts_.push_back(static_cast<int>(source.experts));
}

void WeightStore::add_packed(const WeightSource& source, WeightFormat format, StoredWeight& weight) {
  weight.form = StoredWeight::Form::packed;
  weight.packed = {
      .format = format, .rows = static_cast<int>(source.rows), .columns = static_cast<int>(source.columns)};
  weight.experts = static_cast<int>(source.experts);
  weight.expert_bytes = weight.packed.bytes();
  weight.memory = allocate(count_of(source.experts) * weight.expert_bytes, "weights");
  weight.packed.data = weight.memory.data();
  // A table of embeddings is looked up and never multiplied with; experts have a grouped GEMM on packed weights.
  if (source.role != WeightRole::embedding && !is_expert(source.role)) {
    const std::size_t numbers = count_of(source.rows) * count_of(source.columns);
    largest_packed_ = std::max(largest_packed_, numbers);
    weight.has_mirror = true;
    weight.mirror_at = mirror_bytes_;
    mirror_bytes_ += aligned(2 * numbers);
  }
  if (options_.plan_only) return;
  if (source.rows % kTileRows == 0 && is_one_piece(source)) {
    // Tiles of one expert follow those of the one before.
    PackedMatrix all = weight.packed;
    all.rows *= weight.experts;
    return upload_packed(source, all, data_of(source));
  }
  for (std::int64_t expert = 0; expert < source.experts; ++expert) {
    PackedMatrix one = weight.packed;
    one.data += count_of(expert) * weight.expert_bytes;
    upload_packed(source, one, data_of(source, expert));
  }
}

void WeightStore::upload_packed(const WeightSource& source, const PackedMatrix& target, const std::byte* rows) {
  const std::size_t bytes = row_bytes(type_info(source.type), count_of(source.columns));
  const std::size_t stride = stride_of(source);
  if (stride == bytes) return uploader().upload(target, rows, bytes);
  std::vector<std::byte> together(as_size(target.rows) * bytes);
  for (std::size_t row = 0; row < as_size(target.rows); ++row) {
    std::copy_n(rows + row * stride, bytes, together.data() + row * bytes);
  }
  uploader().upload(target, together.data(), bytes);
}

void WeightStore::add_dense(const WeightSource& source, StoredWeight& weight) {
  weight.form = StoredWeight::Form::dense;
  const bool is_f16 = source.type != QuantType::f32;
  weight.experts = static_cast<int>(source.experts);
  weight.expert_bytes = count_of(source.rows) * count_of(source.columns) * (is_f16 ? 2 : 4);
  weight.memory = allocate(count_of(source.experts) * weight.expert_bytes, "weights");
  weight.dense = {.data = weight.memory.data(),
                  .is_f16 = is_f16,
                  .rows = static_cast<int>(source.rows),
                  .columns = static_cast<int>(source.columns)};
  if (is_f16) weight.f16 = weight.memory.as<std::uint16_t>();
  if (options_.plan_only) return;
  for (std::int64_t expert = 0; expert < source.experts; ++expert) {
    upload_dense(source, data_of(source, expert), weight.memory.data() + count_of(expert) * weight.expert_bytes);
  }
}

void WeightStore::upload_dense(const WeightSource& source, const std::byte* rows, std::byte* target) {
  const std::size_t bytes = row_bytes(type_info(source.type), count_of(source.columns));
  const bool as_it_is = source.type == QuantType::f32 || source.type == QuantType::f16;
  if (as_it_is && stride_of(source) == bytes) {
    uploader().upload(target, rows, count_of(source.rows) * bytes);
  } else if (as_it_is) {
    for (std::size_t row = 0; row < count_of(source.rows); ++row) {
      uploader().upload(target + row * bytes, rows + row * stride_of(source), bytes);
    }
  } else {
    upload_as_f16(source, rows, target);
  }
}

void WeightStore::upload_as_f16(const WeightSource& source, const std::byte* rows, std::byte* target) {
  const std::size_t columns = count_of(source.columns);
  const std::size_t total = count_of(source.rows);
  const std::size_t rows_a_piece = std::max<std::size_t>(1, (std::size_t{1} << 20) / columns);
  std::vector<float> values(columns);
  std::vector<HalfBits> halves(rows_a_piece * columns);
  for (std::size_t first = 0; first < total; first += rows_a_piece) {
    const std::size_t count = std::min(rows_a_piece, total - first);
    for (std::size_t row = 0; row < count; ++row) {
      decode_row(source.type, rows + (first + row) * stride_of(source), values.data(), columns);
      std::transform(values.begin(), values.end(), halves.begin() + static_cast<std::ptrdiff_t>(row * columns),
                     [](float value) { return f32_to_f16_saturating(value); });
      saturated_ += static_cast<std::uint64_t>(
          std::ranges::count_if(values, [](float value) { return std::abs(value) > kLargestF16; }));
    }
    uploader().upload(target + first * columns * 2, reinterpret_cast<const std::byte*>(halves.data()),
                      count * columns * 2);
  }
}

void WeightStore::add_vector(const WeightSource& source, StoredWeight& weight) {
  weight.form = StoredWeight::Form::vector;
  const std::size_t columns = count_of(source.columns);
  const std::size_t rows = count_of(source.rows);
  const std::size_t experts = count_of(source.experts);
  weight.memory = allocate(experts * rows * columns * sizeof(float), "vectors");
  weight.values = weight.memory.as<float>();
  if (options_.plan_only) return;
  std::vector<float> values(experts * rows * columns);
  for (std::size_t row = 0; row < experts * rows; ++row) {
    const std::byte* first = data_of(source, static_cast<std::int64_t>(row / rows));
    decode_row(source.type, first + row % rows * stride_of(source), values.data() + row * columns, columns);
  }
  uploader().upload(weight.memory.data(), reinterpret_cast<const std::byte*>(values.data()),
                    values.size() * sizeof(float));
}

void WeightStore::finish(const LaunchContext& context) {
  if (uploader_) uploader_->finish();
  uploader_.reset();
  if (mirror_bytes_ == 0 || !options_.mirrors || mirrors_.data() != nullptr) return;
  mirrors_ = DeviceBuffer(mirror_bytes_, "weights in 16 bits");
  for (StoredWeight& weight : weights_) {
    if (!weight.has_mirror) continue;
    auto* place = reinterpret_cast<std::uint16_t*>(mirrors_.data() + weight.mirror_at);
    decode_to_f16(context, weight.packed, place);
    weight.f16 = place;
  }
}

const StoredWeight& WeightStore::operator[](const Weight& weight) const {
  if (weight.id < 0 || as_size(weight.id) >= weights_.size()) fail(ErrorKind::internal, "an op lacks a weight");
  return weights_[as_size(weight.id)];
}

const float* WeightStore::vector_of(const Weight& weight, int count) const {
  if (!weight.valid()) return nullptr;
  const StoredWeight& found = (*this)[weight];
  const int held = weight.experts * weight.rows * weight.columns;
  if (found.form != StoredWeight::Form::vector || held != count) {
    fail(ErrorKind::internal, "an op needs a vector of {} values and was given one of {}", count, held);
  }
  return found.values;
}

std::vector<GemmShape> WeightStore::gemm_shapes() const {
  std::vector<GemmShape> shapes;
  const auto add = [&](const GemmShape& shape) {
    if (shape.rows > widest_output_ || std::ranges::find(shapes, shape) != shapes.end()) return;
    shapes.push_back(shape);
  };
  for (const StoredWeight& weight : weights_) {
    const PackedMatrix& matrix = weight.packed;
    if (weight.has_mirror && mirrors_.data() != nullptr && DenseGemm::can_multiply(matrix.rows, matrix.columns)) {
      add({.rows = matrix.rows, .columns = matrix.columns});
    }
    if (can_multiply_floats(weight)) {
      add({.rows = weight.dense.rows, .columns = weight.dense.columns, .f32_in = true});
    }
  }
  return shapes;
}

std::size_t WeightStore::prepared_bytes() const noexcept { return prepared_bytes_ + mirror_bytes(); }

}  // namespace quarrel::cuda
