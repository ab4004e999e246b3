// What takes long to see of keys: that the time of a check tells nothing of the key.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <random>
#include <vector>

#include "server/key_ring.h"
#include "support/temp_dir.h"

namespace quarrel {
namespace {

constexpr std::size_t kSamples = 1'000'000;  // of each kind

// Welch's t between two sets of times. Those of the slowest tenth, when the machine did something else, do not count.
double welch(std::vector<double>& a, std::vector<double>& b) {
  std::vector<double> all(a);
  all.insert(all.end(), b.begin(), b.end());
  std::ranges::nth_element(all, all.begin() + static_cast<std::ptrdiff_t>(all.size() * 9 / 10));
  const double most = all[all.size() * 9 / 10];
  struct Moments {
    double count = 0.0, mean = 0.0, variance = 0.0;
  };
  const auto moments = [&](const std::vector<double>& times) {
    Moments m;
    double sum = 0.0, squares = 0.0;
    for (const double time : times) {
      if (time > most) continue;
      m.count += 1.0;
      sum += time;
      squares += time * time;
    }
    m.mean = sum / m.count;
    m.variance = squares / m.count - m.mean * m.mean;
    return m;
  };
  const Moments x = moments(a), y = moments(b);
  return (x.mean - y.mean) / std::sqrt(x.variance / x.count + y.variance / y.count);
}

TEST(KeySoak, TheTimeOfACheckTellsNothing) {
  const test::TempDir folder;
  const KeyStore store(folder.path() / "keys.json");
  const std::string key = store.create({.name = "a"}, {}).key;
  MemoryLog log;
  KeyRing keys({.file = store.file(), .now = [] { return Clock::time_point{}; }}, log);
  // The first letter of the secret is wrong, or the last one, as chance has it, of many keys that lie where chance has
  // put them: where a key lies and when it was written there takes time too.
  struct Presented {
    std::array<char, 64> text = {};
    std::size_t kind = 0;
  };
  std::mt19937 random(7);
  std::vector<Presented> wrong(std::size_t{1} << 16);
  for (Presented& each : wrong) {
    each.kind = random() % 2;
    std::ranges::copy(key, each.text.begin());
    char& changed = each.text[each.kind == 0 ? 13 : key.size() - 1];
    const char letter = static_cast<char>('a' + random() % 26);
    changed = letter == changed ? 'A' : letter;
  }
  std::vector<std::vector<double>> times(2);
  for (auto& each : times) each.reserve(kSamples + kSamples / 10);
  for (std::size_t i = 0; i < 2 * kSamples; ++i) {
    const Presented& presented = wrong[random() % wrong.size()];
    const Clock::time_point begun = Clock::now();
    const KeyRing::Result result = keys.check({presented.text.data(), key.size()});
    times[presented.kind].push_back(std::chrono::duration<double, std::nano>(Clock::now() - begun).count());
    ASSERT_EQ(result.verdict, KeyRing::Verdict::wrong);
  }
  EXPECT_LT(std::abs(welch(times[0], times[1])), 4.5) << "the first letter or the last";
}

}  // namespace
}  // namespace quarrel
