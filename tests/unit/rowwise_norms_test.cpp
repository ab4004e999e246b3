// Norms, sums, softmax and rotation at every level against plain loops in double.
#include "unit/rowwise_support.h"

namespace quarrel::test {
namespace {

TEST(RowwiseNorms, RmsNorm) {
  for_levels_and_lengths([](const CpuKernels& kernels, std::size_t length) {
    if (length == 0) return;
    const std::vector<float> x = random_values(length, 1, 3.0f);
    const std::vector<float> weight = random_values(length, 2);
    double squares = 0.0;
    for (const float value : x) squares += static_cast<double>(value) * static_cast<double>(value);
    const double factor = 1.0 / std::sqrt(squares / static_cast<double>(length) + 1e-5);
    const Row in{x};
    Row out(length);
    ASSERT_NO_FATAL_FAILURE(
        expect_close(kernels.rms_norm(in.values().data(), weight.data(), out.data(), length, 1e-5f), squares, 1e-6));
    Row in_place{x};
    kernels.rms_norm(in_place.data(), nullptr, in_place.data(), length, 1e-5f);
    for (std::size_t i = 0; i < length; ++i) {
      const double plain = static_cast<double>(x[i]) * factor;
      ASSERT_NO_FATAL_FAILURE(expect_close(out[i], plain * static_cast<double>(weight[i]), 1e-6));
      ASSERT_NO_FATAL_FAILURE(expect_close(in_place[i], plain, 1e-6));
    }
    ASSERT_TRUE(out.intact() && in_place.intact());
  });
}

TEST(RowwiseNorms, LayerNorm) {
  for_levels_and_lengths([](const CpuKernels& kernels, std::size_t length) {
    if (length == 0) return;
    std::vector<float> x = random_values(length, 3, 2.0f);
    for (float& value : x) value += 5.0f;
    const std::vector<float> weight = random_values(length, 4);
    const std::vector<float> bias = random_values(length, 5);
    double mean = 0.0;
    for (const float value : x) mean += static_cast<double>(value) / static_cast<double>(length);
    double squares = 0.0;
    for (const float value : x) squares += (static_cast<double>(value) - mean) * (static_cast<double>(value) - mean);
    const double factor = 1.0 / std::sqrt(squares / static_cast<double>(length) + 1e-3);
    for (const float* w : {weight.data(), static_cast<const float*>(nullptr)}) {
      for (const float* b : {bias.data(), static_cast<const float*>(nullptr)}) {
        Row out{x};
        ASSERT_NO_FATAL_FAILURE(
            expect_close(kernels.layer_norm(out.data(), w, b, out.data(), length, 1e-3f), squares, 2e-6));
        for (std::size_t i = 0; i < length; ++i) {
          double expected = (static_cast<double>(x[i]) - mean) * factor;
          if (w != nullptr) expected *= static_cast<double>(w[i]);
          if (b != nullptr) expected += static_cast<double>(b[i]);
          ASSERT_NO_FATAL_FAILURE(expect_close(out[i], expected, 4e-6));
        }
        ASSERT_TRUE(out.intact());
      }
    }
  });
}

// A caller sees from the sum of squares that something was not finite, wherever it stood.
TEST(RowwiseNorms, FlagBadNumbers) {
  for_levels_and_lengths([](const CpuKernels& kernels, std::size_t length) {
    for (std::size_t place = 0; place < length; place += 1 + length / 9) {
      for (const float bad : {kNan, kInf, -kInf}) {
        std::vector<float> x = random_values(length, 6);
        x[place] = bad;
        Row out(length);
        ASSERT_FALSE(std::isfinite(kernels.rms_norm(x.data(), nullptr, out.data(), length, 1e-5f))) << place;
        ASSERT_FALSE(std::isfinite(kernels.layer_norm(x.data(), nullptr, nullptr, out.data(), length, 1e-5f))) << place;
      }
    }
  });
}

TEST(RowwiseNorms, RmsNormOfValuesWhoseSquaresAreNotFloats) {
  for_levels_and_lengths([](const CpuKernels& kernels, std::size_t length) {
    const std::vector<float> huge(length, 1e30f);
    Row out(length);
    const float squares = kernels.rms_norm(huge.data(), nullptr, out.data(), length, 1e-5f);
    ASSERT_TRUE(std::isfinite(squares));
    for (std::size_t i = 0; i < length; ++i) ASSERT_NEAR(out[i], 1.0f, 1e-5f);
    ASSERT_TRUE(out.intact());
  });
}

TEST(RowwiseNorms, SumsAndProducts) {
  for_levels_and_lengths([](const CpuKernels& kernels, std::size_t length) {
    const std::vector<float> a = random_values(length, 7);
    const std::vector<float> b = random_values(length, 8);
    const Row more{b};
    Row added{a};
    kernels.add(added.data(), more.values().data(), length);
    Row scaled{a};
    kernels.add_scaled(scaled.data(), more.values().data(), 0.37f, length);
    Row product{a};
    kernels.multiply(product.data(), more.values().data(), length);
    for (std::size_t i = 0; i < length; ++i) {
      ASSERT_EQ(added[i], a[i] + b[i]);
      ASSERT_EQ(product[i], a[i] * b[i]);
      const double exact = static_cast<double>(a[i]) + static_cast<double>(0.37f) * static_cast<double>(b[i]);
      ASSERT_NO_FATAL_FAILURE(expect_close(scaled[i], exact, 1.2e-7));
    }
    ASSERT_TRUE(added.intact() && scaled.intact() && product.intact());
  });
}

TEST(RowwiseNorms, Softmax) {
  for_levels_and_lengths([](const CpuKernels& kernels, std::size_t length) {
    std::vector<float> x = random_values(length, 9, 5.0f);
    for (float& value : x) value -= 50.0f;
    if (length > 20) x[17] = -kInf;
    if (length > 20) x[19] = -500.0f;
    double best = -1e300;
    for (const float value : x) best = std::max(best, static_cast<double>(value));
    double sum = 0.0;
    for (const float value : x) sum += std::exp(static_cast<double>(value) - best);
    Row out{x};
    kernels.softmax(out.data(), length);
    double total = 0.0;
    for (std::size_t i = 0; i < length; ++i) {
      const double expected = std::exp(static_cast<double>(x[i]) - best) / sum;
      ASSERT_LE(std::abs(static_cast<double>(out[i]) - expected), 3e-6 * expected + 1e-38) << x[i];
      total += static_cast<double>(out[i]);
    }
    if (length > 0) {
      ASSERT_NEAR(total, 1.0, 1e-6);
    }
    if (length > 20) {
      ASSERT_EQ(out[17], 0.0f);
    }
    ASSERT_TRUE(out.intact());
    for (const float bad : {kNan, kInf}) {
      for (std::size_t place = 0; place < length; place += 1 + length / 7) {
        std::vector<float> row = x;
        row[place] = bad;
        kernels.softmax(row.data(), length);
        for (const float value : row) ASSERT_TRUE(std::isnan(value)) << place;
      }
    }
  });
}

TEST(RowwiseNorms, Rotation) {
  for_levels_and_lengths([](const CpuKernels& kernels, std::size_t pairs) {
    const std::vector<float> x = random_values(2 * pairs, 10);
    const std::vector<float> angles = random_values(pairs, 11);
    Row cosines(pairs);
    Row sines(pairs);
    for (std::size_t i = 0; i < pairs; ++i) {
      cosines.data()[i] = std::cos(angles[i]);
      sines.data()[i] = std::sin(angles[i]);
    }
    Row half{x};
    kernels.rotate_half(half.data(), cosines.data(), sines.data(), pairs);
    Row interleaved{x};
    kernels.rotate_interleaved(interleaved.data(), cosines.data(), sines.data(), pairs);
    for (std::size_t i = 0; i < pairs; ++i) {
      const float c = cosines[i];
      const float s = sines[i];
      ASSERT_EQ(half[i], x[i] * c - x[i + pairs] * s);
      ASSERT_EQ(half[i + pairs], x[i] * s + x[i + pairs] * c);
      ASSERT_EQ(interleaved[2 * i], x[2 * i] * c - x[2 * i + 1] * s);
      ASSERT_EQ(interleaved[2 * i + 1], x[2 * i] * s + x[2 * i + 1] * c);
    }
    ASSERT_TRUE(half.intact() && interleaved.intact());
  });
}

}  // namespace
}  // namespace quarrel::test
