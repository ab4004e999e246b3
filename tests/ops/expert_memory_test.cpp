// Where experts lie and when they are read changes nothing that they compute: rows with gaps between them, experts in
// places of their own, a cache that holds a few of them. And a row's bits are its own, whoever else is in the step.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <deque>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "backend/create.h"
#include "base/error.h"
#include "base/mapped_file.h"
#include "ops/harness.h"
#include "support/temp_dir.h"

namespace quarrel::test {
namespace {

constexpr std::int32_t kWidth = 64;
constexpr std::int32_t kHidden = 96;
constexpr std::int32_t kExperts = 16;
constexpr std::int32_t kUsed = 4;
constexpr std::int32_t kRows = 70;

// The two layers of these tests: their experts differ in type, so in size.
struct LayerWeights {
  explicit LayerWeights(std::int32_t layer)
      : type(layer == 0 ? QuantType::q4_0 : QuantType::q8_0),
        router(random_matrix(kExperts, kWidth, 200 + as_size(layer))),
        gate(random_matrix(as_size(kExperts) * kHidden, kWidth, 210 + as_size(layer), 0.4)),
        up(random_matrix(as_size(kExperts) * kHidden, kWidth, 220 + as_size(layer), 0.4)),
        down(random_matrix(as_size(kExperts) * kWidth, kHidden, 230 + as_size(layer), 0.4)),
        before(random_matrix(1, kWidth, 240 + as_size(layer), 0.5, 1.0).values) {}
  QuantType type;
  Floats router, gate, up, down;
  std::vector<float> before;

  std::size_t row(std::size_t columns) const { return row_bytes(type_info(type), columns); }
  // Of one expert in a cache.
  std::size_t bytes() const { return 2 * kHidden * row(kWidth) + kWidth * row(kHidden); }
};

enum class Where { together, alternating, places, file };

// Two layers of experts, one after the other.
class ExpertBench {
 public:
  explicit ExpertBench(const DeviceUnderTest& device, Where where = Where::together, const BackendOptions& options = {})
      : fixture(device, options), where_(where) {
    x_ = fixture.input(random_matrix(kRows, kWidth, 199));
    for (std::int32_t layer = 0; layer < 2; ++layer) add_layer(layer);
  }

  Floats run(const StepPlan& plan) {
    return fixture.run(plan, x_, [&](Backend& b) {
      for (const MoeOp& op : ops_) b.moe(op);
    });
  }
  Floats run(std::int32_t first, std::int32_t count) { return run(StepPlan().add(first, count, {})); }

  const std::filesystem::path& file_of(std::size_t layer) const { return paths_[layer]; }

 private:
  void add_layer(std::int32_t layer) {
    const LayerWeights weights(layer);
    const WeightSource columns{.name = "up",
                               .role = WeightRole::expert_column,
                               .type = weights.type,
                               .rows = kHidden,
                               .columns = kWidth,
                               .experts = kExperts,
                               .layer = layer,
                               .experts_used = kUsed};
    WeightSource gate = columns;
    WeightSource up = columns;
    WeightSource down = columns;
    down.role = WeightRole::expert_row;
    down.rows = kWidth;
    down.columns = kHidden;
    const std::size_t row = weights.row(kWidth);
    if (where_ == Where::alternating) {
      interleave(weights, row, gate, up);
    } else {
      set_place(gate, encoded(weights.gate, weights.type), layer);
      set_place(up, encoded(weights.up, weights.type), layer);
    }
    set_place(down, encoded(weights.down, weights.type), layer);
    MoeOp op{.layer = layer,
             .x = x_,
             .before = {.kind = NormKind::rms, .epsilon = 1e-5f, .weight = fixture.vector(weights.before)},
             .router = fixture.matrix(weights.router),
             .used = kUsed};
    // Whether gate or up comes first must not matter.
    op.down = fixture.backend().prepare_weight(down);
    op.up = fixture.backend().prepare_weight(layer == 0 ? up : gate);
    op.gate = fixture.backend().prepare_weight(layer == 0 ? gate : up);
    if (layer != 0) std::swap(op.up, op.gate);
    op.end = {.x = x_};
    ops_.push_back(op);
  }

  // Gate and up as the even and the odd rows of one tensor.
  void interleave(const LayerWeights& weights, std::size_t row, WeightSource& gate, WeightSource& up) {
    const std::vector<std::byte> gates = encoded(weights.gate, weights.type);
    const std::vector<std::byte> ups = encoded(weights.up, weights.type);
    std::vector<std::byte>& joined = memory_.emplace_back(2 * gates.size());
    for (std::size_t r = 0; r < gates.size() / row; ++r) {
      std::copy_n(gates.data() + r * row, row, joined.data() + 2 * r * row);
      std::copy_n(ups.data() + r * row, row, joined.data() + (2 * r + 1) * row);
    }
    gate.row_stride = up.row_stride = 2 * row;
    gate.data = joined.data();
    up.data = joined.data() + row;
  }

  void set_place(WeightSource& source, std::vector<std::byte> bytes, std::int32_t layer) {
    const std::size_t expert_bytes = bytes.size() / kExperts;
    if (where_ != Where::places && where_ != Where::file) {
      source.data = memory_.emplace_back(std::move(bytes)).data();
      return;
    }
    std::vector<ExpertPlace>& places = places_.emplace_back(kExperts);
    source.places = places;
    if (where_ == Where::places) {
      for (std::size_t e = kExperts; e-- > 0;) {  // in no particular order
        const auto begin = bytes.begin() + static_cast<std::ptrdiff_t>(e * expert_bytes);
        places[e].data = memory_.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(expert_bytes)).data();
      }
      return;
    }
    // What is mapped is wrong: whoever reads the file does not see it.
    const std::vector<std::byte>& wrong = memory_.emplace_back(expert_bytes, std::byte{0x7f});
    paths_.push_back(folder_ / fmt::format("{}-{}", layer, paths_.size()));
    std::ofstream(paths_.back(), std::ios::binary)
        .write("somewhere", 9)
        .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    const MappedFile& file = files_.emplace_back(MappedFile::open(paths_.back()));
    for (std::size_t e = 0; e < kExperts; ++e) {
      places[e] = {.data = wrong.data(), .file = &file, .offset = 9 + e * expert_bytes};
    }
  }

  TempDir folder_;
  std::deque<std::vector<std::byte>> memory_;
  std::deque<std::vector<ExpertPlace>> places_;
  std::deque<MappedFile> files_;
  std::vector<std::filesystem::path> paths_;

 public:
  OpFixture fixture;

 private:
  Where where_;
  Activation x_;
  std::vector<MoeOp> ops_;
};

std::size_t least_budget() { return kUsed * std::max(LayerWeights(0).bytes(), LayerWeights(1).bytes()); }
std::size_t half_budget() { return kExperts * (LayerWeights(0).bytes() + LayerWeights(1).bytes()) / 2; }

void for_each_cpu(const std::vector<int>& threads, const std::function<void(const DeviceUnderTest&)>& test) {
  std::istringstream levels(available_isa_levels());
  for (std::string level; levels >> level;) {
    for (const int count : threads) {
      SCOPED_TRACE(fmt::format("{}, {} threads", level, count));
      const auto device = make_device({.backend = "cpu", .threads = count, .isa = level});
      test({.device = *device, .epsilon = 4e-6, .quantised_epsilon = 1e-4});
    }
  }
}

TEST(ExpertMemory, RowsWithGapsAndPlacesOfTheirOwn) {
  for_each_device([](const DeviceUnderTest& device) {
    const Floats expected = ExpertBench(device).run(0, kRows);
    EXPECT_EQ(ExpertBench(device, Where::alternating).run(0, kRows).values, expected.values);
    EXPECT_EQ(ExpertBench(device, Where::places).run(0, kRows).values, expected.values);
  });
}

TEST(ExpertMemory, VectorsAndTablesWithGaps) {
  for_each_device([](const DeviceUnderTest& device) {
    // Rows of 32 values in memory that is 48 wide; the vector's two "experts" lie in the wrong order.
    const Floats wide = random_matrix(8, 48, 250);
    OpFixture fixture(device);
    const auto bytes = std::as_bytes(std::span(wide.values));
    const std::array places = {ExpertPlace{.data = bytes.data() + 4 * 48 * sizeof(float)},
                               ExpertPlace{.data = bytes.data()}};
    const Weight bias = fixture.backend().prepare_weight(
        {.name = "bias", .role = WeightRole::vector, .rows = 1, .columns = 16, .experts = 2, .places = places});
    const Weight table = fixture.backend().prepare_weight({.name = "table",
                                                           .role = WeightRole::embedding,
                                                           .rows = 8,
                                                           .columns = 32,
                                                           .data = bytes.data(),
                                                           .row_stride = 48 * sizeof(float)});
    Weight flat = bias;  // 2 x 16 values are 32
    flat.columns = 32;
    flat.experts = 1;
    const Weight ones = fixture.vector(std::vector<float>(32, 1.0f));
    const Activation x = fixture.input(random_matrix(8, 32, 251));
    const Norm norm{.kind = NormKind::layer, .epsilon = 1e-5f, .weight = ones, .bias = flat};
    const Floats rows =
        fixture.run(StepPlan().add(0, 8, {}), x, [&](Backend& b) { b.embed({.out = x, .table = table}); });
    const Floats normed = fixture.run(StepPlan().add(0, 8, {}), x,
                                      [&](Backend& b) { b.embed({.out = x, .table = table, .norm = norm}); });
    std::vector<float> bias_values = wide.row(4);
    bias_values.resize(16);
    const std::vector<float> second = wide.row(0);
    bias_values.insert(bias_values.end(), second.begin(), second.begin() + 16);
    for (std::size_t r = 0; r < 8; ++r) {
      std::vector<float> expected = wide.row(r);
      expected.resize(32);
      EXPECT_EQ(rows.row(r), expected);
      expect_close(widen(normed.row(r)), layer_norm(widen(expected), std::vector<float>(32, 1.0f), bias_values, 1e-5),
                   1e-5);
    }
  });
}

TEST(ExpertMemory, ImpossiblePlacesAreRefused) {
  for_each_device([](const DeviceUnderTest& device) {
    const auto backend = device.device.make_backend({});
    const std::vector<std::byte> bytes(4096);
    const std::vector<ExpertPlace> places(3, {.data = bytes.data()});
    const WeightSource good{.name = "w",
                            .role = WeightRole::expert_column,
                            .type = QuantType::q8_0,
                            .rows = 2,
                            .columns = 64,
                            .experts = 3,
                            .places = places,
                            .experts_used = 2};
    EXPECT_TRUE(backend->prepare_weight(good).valid());
    const auto refused = [&](const auto& change) {
      WeightSource bad = good;
      change(bad);
      EXPECT_THROW(backend->prepare_weight(bad), Error);
    };
    refused([](WeightSource& s) { s.row_stride = 67; });
    refused([](WeightSource& s) { s.row_stride = ~std::size_t{0} / 2; });
    refused([](WeightSource& s) { s.places = s.places.first(2); });
    refused([](WeightSource& s) { s.places = {}; });
    refused([](WeightSource& s) { s.experts_used = 4; });
    refused([](WeightSource& s) { s.experts_used = 0; });
    const std::vector<ExpertPlace> hole = {places[0], {}, places[2]};
    refused([&](WeightSource& s) { s.places = hole; });
  });
}

TEST(ExpertMemory, ARowsBitsAreItsOwn) {
  for (const ActivationPrecision precision :
       {ActivationPrecision::int8_split, ActivationPrecision::int8, ActivationPrecision::f32}) {
    const BackendOptions options{.activations = precision};
    std::string last_level;
    Floats first_of_level;
    for_each_cpu({1, 2, 5}, [&](const DeviceUnderTest& device) {
      // Rows 0 to 6 as generated ones, the others as a prompt.
      StepPlan mixed = StepPlan().add(0, 7, {}).add(7, kRows - 7, {});
      mixed.generated_rows = 7;
      ExpertBench fixture(device, Where::together, options);
      const Floats all = fixture.run(mixed);
      for (std::int32_t r = 0; r < kRows; r += r < 6 ? 2 : 9) {
        StepPlan alone = StepPlan().add(r, 1, {});
        alone.generated_rows = r < 7 ? 1 : 0;
        EXPECT_EQ(fixture.run(alone).row(0), all.row(as_size(r))) << "row " << r;
      }
      const Floats chunk = fixture.run(20, 13);
      for (std::size_t r = 0; r < 13; ++r) EXPECT_EQ(chunk.row(r), all.row(20 + r)) << "row " << 20 + r;
      const std::string level = device.device.description().substr(0, device.device.description().find(','));
      if (level != last_level) first_of_level = all;
      last_level = level;
      EXPECT_EQ(all.values, first_of_level.values);
    });
  }
}

TEST(ExpertCache, SameBitsAsWithoutOne) {
  for_each_cpu({1, 3}, [](const DeviceUnderTest& device) {
    const Floats expected = ExpertBench(device).run(0, kRows);
    for (const std::size_t budget : {half_budget(), least_budget()}) {
      for (const Where where : {Where::together, Where::alternating, Where::places, Where::file}) {
        SCOPED_TRACE(testing::Message() << "budget " << budget << ", place " << static_cast<int>(where));
        ExpertBench fixture(device, where, {.cpu = {.expert_memory = budget}});
        EXPECT_EQ(fixture.fixture.backend().expert_cache_bytes(), budget);
        for (int turn = 0; turn < 2; ++turn) EXPECT_EQ(fixture.run(0, kRows).values, expected.values);
        for (std::int32_t r = 0; r < kRows; r += 11) EXPECT_EQ(fixture.run(r, 1).row(0), expected.row(as_size(r)));
      }
    }
  });
}

TEST(ExpertCache, AlternatingMatricesAreReadOnce) {
  for_each_cpu({2}, [](const DeviceUnderTest& device) {
    ExpertBench fixture(device, Where::alternating, {.cpu = {.expert_memory = half_budget()}});
    fixture.run(0, 1);
    const BackendCounters counters = fixture.fixture.backend().counters();
    EXPECT_EQ(counters.expert_misses, 2u * kUsed);
    EXPECT_EQ(counters.expert_bytes_read, kUsed * (LayerWeights(0).bytes() + LayerWeights(1).bytes()));
  });
}

TEST(ExpertCache, CountsHitsAndMisses) {
  for_each_cpu({1}, [](const DeviceUnderTest& device) {
    ExpertBench fixture(device, Where::file, {.cpu = {.expert_memory = half_budget()}});
    fixture.run(3, 1);
    const BackendCounters cold = fixture.fixture.backend().counters();
    EXPECT_EQ(cold.expert_hits, 0u);
    EXPECT_EQ(cold.expert_misses, 2u * kUsed);
    EXPECT_EQ(cold.expert_bytes_read, kUsed * (LayerWeights(0).bytes() + LayerWeights(1).bytes()));
    fixture.run(3, 1);
    const BackendCounters warm = fixture.fixture.backend().counters();
    EXPECT_EQ(warm.expert_hits, 2u * kUsed);
    EXPECT_EQ(warm.expert_misses, cold.expert_misses);
    EXPECT_EQ(warm.expert_bytes_read, cold.expert_bytes_read);
  });
}

TEST(ExpertCache, TheLeastRecentlyUsedGoes) {
  for_each_cpu({1}, [](const DeviceUnderTest& device) {
    // A row goes to the expert whose number its token has; two fit.
    constexpr std::int32_t kCount = 4;
    Floats x(kCount, 32);
    for (std::size_t r = 0; r < kCount; ++r) x.at(r, r) = 1.0f;
    OpFixture fixture(device, {.cpu = {.expert_memory = 2 * 2 * 32 * 32 * sizeof(float)}});
    const Floats weights = random_matrix(kCount * 32, 32, 260);
    MoeOp op{.x = fixture.input(x),
             .router = fixture.matrix(x),
             .up = fixture.experts(weights, kCount, WeightRole::expert_column, 1),
             .down = fixture.experts(weights, kCount, WeightRole::expert_row, 1),
             .used = 1,
             .activation = ActivationKind::silu};
    op.end = {.x = op.x};
    std::string seen;
    for (const std::int32_t token : {0, 1, 0, 2, 0, 1, 2, 2, 0}) {
      const std::uint64_t before = fixture.backend().counters().expert_misses;
      fixture.run(StepPlan().add(token, 1, {}), [&](Backend& b) { b.moe(op); });
      seen += fixture.backend().counters().expert_misses > before ? 'm' : 'h';
    }
    EXPECT_EQ(seen, "mmhmhmmhm");
  });
}

TEST(ExpertCache, IsUsableAfterAReadThatFailed) {
  for_each_cpu({1, 3}, [](const DeviceUnderTest& device) {
    const Floats expected = ExpertBench(device).run(0, kRows);
    ExpertBench fixture(device, Where::file, {.cpu = {.expert_memory = least_budget()}});
    EXPECT_EQ(fixture.run(5, 1).row(0), expected.row(5));
    const std::filesystem::path& path = fixture.file_of(2);  // the last matrix of the first layer that is read
    std::ifstream whole(path, std::ios::binary);
    std::stringstream content;
    content << whole.rdbuf();
    std::filesystem::resize_file(path, 100);
    try {
      fixture.run(0, kRows);
      ADD_FAILURE() << "the file was cut";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::io);
      EXPECT_NE(std::string(error.what()).find(path.string()), std::string::npos) << error.what();
    }
    const std::string bytes = content.str();
    std::ofstream(path, std::ios::binary | std::ios::in)
        .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    EXPECT_EQ(fixture.run(0, kRows).values, expected.values);
    EXPECT_EQ(fixture.run(5, 1).row(0), expected.row(5));
  });
}

TEST(ExpertCache, RefusesABudgetThatOneTokenExceeds) {
  for_each_cpu({1}, [](const DeviceUnderTest& device) {
    for (const std::size_t budget : {std::size_t{0}, least_budget() - 1}) {
      ExpertBench fixture(device, Where::together, {.cpu = {.expert_memory = budget}});
      try {
        fixture.run(0, 1);
        ADD_FAILURE() << budget << " bytes are too few";
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::out_of_memory);
        EXPECT_NE(std::string(error.what()).find(std::to_string(least_budget())), std::string::npos) << error.what();
      }
    }
  });
}

TEST(ExpertCache, IsNotMadeWhereAllExpertsFit) {
  for_each_device([](const DeviceUnderTest& device) {
    ExpertBench fixture(device, Where::together, {.cpu = {.expert_memory = 2 * half_budget()}});
    EXPECT_EQ(fixture.fixture.backend().expert_cache_bytes(), 0u);
    EXPECT_EQ(fixture.run(0, kRows).values, ExpertBench(device).run(0, kRows).values);
    EXPECT_EQ(fixture.fixture.backend().counters().expert_misses, 0u);
  });
}

TEST(ExpertMemory, MoreExpertsThanRoomWasMadeForAreRefused) {
  for_each_cpu({1}, [](const DeviceUnderTest& device) {
    OpFixture fixture(device);
    const Floats weights = random_matrix(4 * 32, 32, 261);
    MoeOp op{.x = fixture.input(random_matrix(2, 32, 262)),
             .router = fixture.matrix(random_matrix(4, 32, 263)),
             .up = fixture.experts(weights, 4, WeightRole::expert_column, 2),
             .down = fixture.experts(weights, 4, WeightRole::expert_row, 2),
             .used = 3};
    op.end = {.x = op.x};
    EXPECT_THROW(fixture.run(StepPlan().add(0, 1, {}), [&](Backend& b) { b.moe(op); }), Error);
    op.used = 2;
    EXPECT_NO_THROW(fixture.run(StepPlan().add(0, 1, {}), [&](Backend& b) { b.moe(op); }));
  });
}

TEST(PlanOnly, AddsUpTheSameSizesAndReadsNothing) {
  for_each_device([](const DeviceUnderTest& device) {
    const StepLimits limits{.rows = 40, .outputs = 8};
    for (const bool repack : {false, true}) {
      const auto planned =
          device.device.make_backend({.plan_only = true, .cpu = {.repack = repack, .expert_memory = 4096}});
      const auto real = device.device.make_backend({.cpu = {.repack = repack, .expert_memory = 4096}});
      const std::vector<std::byte> bytes(256 * 1024);
      for (Backend* backend : {planned.get(), real.get()}) {
        const std::byte* data = backend == real.get() ? bytes.data() : nullptr;
        backend->prepare_weight({.name = "v", .role = WeightRole::vector, .columns = 300, .data = data});
        backend->prepare_weight({.name = "m", .rows = 96, .columns = 64, .data = data});
        for (const WeightRole role : {WeightRole::expert_column, WeightRole::expert_row}) {
          backend->prepare_weight(
              {.name = "e", .role = role, .rows = 64, .columns = 64, .experts = 8, .data = data, .experts_used = 3});
        }
        backend->make_activation(64, RowSet::all);
      }
      // Experts that a cache may hold stay where they are; the other matrix has 96 rows of 64 floats.
      const std::size_t packed = planned->released_bytes();
      EXPECT_EQ(packed, repack && device.device.name() == "cpu" ? 96 * 64 * sizeof(float) : 0);
      EXPECT_EQ(planned->prepared_bytes(), 300 * sizeof(float) + packed);
      EXPECT_EQ(planned->prepared_bytes(), real->prepared_bytes());
      EXPECT_EQ(planned->released_bytes(), real->released_bytes());
      EXPECT_EQ(planned->workspace_bytes(limits, 100), real->workspace_bytes(limits, 100));
      EXPECT_EQ(planned->expert_cache_bytes(), real->expert_cache_bytes());
      EXPECT_THROW(planned->reserve(limits, 100), Error);
      EXPECT_THROW(planned->submit({}, [](Backend&, const StepShape&) {}), Error);
    }
  });
}

TEST(PlanOnly, CountsTheRoomThatExpertsNeed) {
  for_each_cpu({1}, [](const DeviceUnderTest& device) {
    const auto backend = device.device.make_backend({.plan_only = true});
    const auto add = [&](std::int32_t used) {
      backend->prepare_weight(
          {.name = "e", .role = WeightRole::expert_row, .rows = 64, .columns = 32, .experts = 8, .experts_used = used});
      return backend->workspace_bytes({.rows = 100, .outputs = 1}, 10);
    };
    const std::size_t one = add(1);
    EXPECT_GE(add(3), one + 2 * 100 * 64 * sizeof(float));
  });
}

}  // namespace
}  // namespace quarrel::test
