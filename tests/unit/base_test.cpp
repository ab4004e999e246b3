// The small tools of base: digests, near names, texts for messages, the environment, mapped files.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <ctime>
#include <limits>

#include "base/checked.h"
#include "base/counted.h"
#include "base/environment.h"
#include "base/mapped_file.h"
#include "base/nearest.h"
#include "base/printable.h"
#include "base/secure_random.h"
#include "base/sha256.h"
#include "base/utc_time.h"
#include "support/temp_dir.h"
#include "unit/gguf_support.h"

namespace quarrel {
namespace {

using test::expect_error;
using test::TempDir;
using test::write_file;

TEST(Counted, HasRealPlurals) {
  EXPECT_EQ(counted(0, "token"), "0 tokens");
  EXPECT_EQ(counted(1, "token"), "1 token");
  EXPECT_EQ(counted(std::size_t{2}, "message"), "2 messages");
}

TEST(Sha256, KnownAnswers) {
  EXPECT_EQ(sha256(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
}

TEST(Sha256, FilesInPiecesWithProgress) {
  const TempDir folder;
  const std::string text(3'000'000, 'a');
  write_file(folder / "f", text);
  std::uint64_t last = 0;
  const std::string digest = sha256_file(folder / "f", [&](std::uint64_t done, std::uint64_t total) {
    EXPECT_GE(done, last);
    EXPECT_EQ(total, text.size());
    last = done;
  });
  EXPECT_EQ(digest, sha256(text));
  EXPECT_EQ(last, text.size());
  write_file(folder / "empty", "");
  EXPECT_EQ(sha256_file(folder / "empty"), sha256(""));
}

TEST(Sha256, FileErrors) {
  const TempDir folder;
  expect_error(ErrorKind::not_found, {"absent"}, [&] { sha256_file(folder / "absent"); });
  expect_error(ErrorKind::io, {}, [&] { sha256_file(folder.path()); });
  write_file(folder / "f", "text");
  std::stop_source stop;
  stop.request_stop();
  expect_error(ErrorKind::cancelled, {}, [&] { sha256_file(folder / "f", {}, stop.get_token()); });
}

// The definition, without a bound.
std::size_t plain_distance(const std::string& a, const std::string& b) {
  std::vector<std::vector<std::size_t>> cost(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) {
    for (std::size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        cost[i][j] = i + j;
        continue;
      }
      cost[i][j] =
          std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1, cost[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
      }
    }
  }
  return cost[a.size()][b.size()];
}

TEST(Nearest, DistanceAgreesWithItsDefinition) {
  // All words of up to five letters of two kinds, against each other, under every bound.
  std::vector<std::string> words{""};
  for (std::size_t i = 0; i < words.size() && words[i].size() < 5; ++i) {
    words.push_back(words[i] + "a");
    words.push_back(words[i] + "b");
  }
  for (const std::string& a : words) {
    for (const std::string& b : words) {
      const std::size_t expected = plain_distance(a, b);
      for (std::size_t bound = 0; bound <= 6; ++bound) {
        const auto found = edit_distance(a, b, bound);
        EXPECT_EQ(found, expected <= bound ? std::optional(expected) : std::nullopt) << a << " " << b << " " << bound;
      }
    }
  }
  EXPECT_EQ(edit_distance("KITTEN", "sitting", 9), 3U);
  EXPECT_FALSE(edit_distance("a", std::string(100'000, 'b'), 3).has_value());
}

TEST(Nearest, OffersBestFirst) {
  const std::vector<std::string> names{"mistral", "mistral:7b", "mixtral", "llama", "gemma"};
  EXPECT_EQ(nearest("mistrl", names), (std::vector<std::string>{"mistral", "mixtral"}));
  EXPECT_EQ(nearest("MIST", names), (std::vector<std::string>{"mistral", "mistral:7b"}));
  EXPECT_EQ(nearest("mistra", names, 1), (std::vector<std::string>{"mistral"}));
  EXPECT_TRUE(nearest("qwen", names).empty());
  EXPECT_TRUE(nearest("", names).empty());
  EXPECT_TRUE(nearest(std::string(10'000, 'x'), names).empty());
}

TEST(Printable, KeepsTextAndEscapesTheRest) {
  EXPECT_EQ(printable("plain h\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80"),
            "plain h\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80");
  EXPECT_EQ(printable("a\nb\x1b[1m\x7f"), "a\\x0ab\\x1b[1m\\x7f");
  EXPECT_EQ(printable("\xff\xc3("), "\\xff\\xc3(");
  EXPECT_EQ(printable("\xc0\x80\xed\xa0\x80\xf4\x90\x80\x80\xe0\x80\x80"),
            "\\xc0\\x80\\xed\\xa0\\x80\\xf4\\x90\\x80\\x80\\xe0\\x80\\x80");
  EXPECT_EQ(printable("\xc2\x9b"), "\\xc2\\x9b") << "a control character of two bytes";
  EXPECT_EQ(printable("abcdef", 3), "abc...");
  EXPECT_EQ(printable("ab\xe2\x82\xac", 4), "ab...") << "never half a character";
  EXPECT_EQ(printable("abc", 3), "abc");
}

TEST(UtcTime, IsWrittenAsTheCalendarHasIt) {
  using std::chrono::microseconds;
  const auto at = [](std::int64_t seconds, std::int64_t micros) {
    return std::chrono::sys_time<microseconds>(std::chrono::seconds(seconds) + microseconds(micros));
  };
  EXPECT_EQ(rfc3339(at(0, 0)), "1970-01-01T00:00:00.000000Z");
  EXPECT_EQ(rfc3339(at(951782399, 999999)), "2000-02-28T23:59:59.999999Z");
  EXPECT_EQ(rfc3339(at(951782400, 7), 3), "2000-02-29T00:00:00.000Z");
  EXPECT_EQ(rfc3339(at(1777889472, 345678), 3), "2026-05-04T10:11:12.345Z");
  EXPECT_EQ(rfc3339(at(1777889472, 345678), 0), "2026-05-04T10:11:12Z");
  EXPECT_EQ(rfc3339(at(-1, 500000)), "1969-12-31T23:59:59.500000Z");
  EXPECT_EQ(rfc3339(std::chrono::sys_seconds(std::chrono::seconds(1'000'000'000'000)), 0), "33658-09-27T01:46:40Z");
  for (std::int64_t seconds = -4'000'000'000; seconds < 9'000'000'000; seconds += 86'399 * 97) {
    const std::time_t time = seconds;
    std::tm parts{};
    ASSERT_NE(gmtime_r(&time, &parts), nullptr);
    char text[40];
    ASSERT_EQ(std::string(text, std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts)),
              rfc3339(at(seconds, 1), 0));
  }
}

TEST(SecureRandom, FillsAllOfIt) {
  EXPECT_EQ(hex_of(std::array<unsigned char, 3>{0x00, 0x9f, 0xa0}), "009fa0");
  // Each byte is something else than zero now and then.
  std::array<bool, 48> seen{};
  for (int i = 0; i < 64; ++i) {
    const auto bytes = random_bytes<48>();
    for (std::size_t k = 0; k < bytes.size(); ++k) seen[k] = seen[k] || bytes[k] != 0;
  }
  EXPECT_TRUE(std::ranges::all_of(seen, [](bool each) { return each; }));
}

TEST(Environment, ReadsAndOverrides) {
  EXPECT_TRUE(environment("PATH").has_value());
  EXPECT_FALSE(environment("QUARREL_SURELY_NOT_SET").has_value());
  const auto block = environment_with({{"PATH", "/nowhere"}, {"QUARREL_SURELY_NOT_SET", "x=y"}});
  EXPECT_EQ(std::count(block.begin(), block.end(), "PATH=/nowhere"), 1);
  EXPECT_EQ(std::count(block.begin(), block.end(), "QUARREL_SURELY_NOT_SET=x=y"), 1);
  const auto starts_with_path = [](const std::string& line) { return line.rfind("PATH=", 0) == 0; };
  EXPECT_EQ(std::count_if(block.begin(), block.end(), starts_with_path), 1);
}

TEST(Checked, SumsProductsAndRounding) {
  constexpr auto kMost = std::numeric_limits<std::uint64_t>::max();
  EXPECT_EQ(checked_add(kMost - 1, 1), kMost);
  EXPECT_FALSE(checked_add(kMost, 1).has_value());
  EXPECT_EQ(checked_mul(1ULL << 32, (1ULL << 32) - 1), kMost - (1ULL << 32) + 1);
  EXPECT_FALSE(checked_mul(1ULL << 32, 1ULL << 32).has_value());
  EXPECT_EQ(checked_round_up(33, 32), 64U);
  EXPECT_EQ(checked_round_up(64, 32), 64U);
  EXPECT_FALSE(checked_round_up(kMost, 32).has_value());
}

TEST(MappedFile, MapsReleasesAndReadsAgain) {
  const TempDir folder;
  std::string text(100'000, 'x');
  text.back() = 'y';
  write_file(folder / "f", text);
  const MappedFile file = MappedFile::open(folder / "f");
  ASSERT_EQ(file.bytes().size(), text.size());
  for (const std::size_t length : {std::size_t{1}, text.size(), std::numeric_limits<std::size_t>::max()}) {
    for (const std::size_t offset :
         {std::size_t{0}, std::size_t{5000}, text.size(), std::numeric_limits<std::size_t>::max()}) {
      file.release_pages(offset, length);
      EXPECT_EQ(test::as_text(file.bytes()), text);
    }
  }
  write_file(folder / "empty", "");
  EXPECT_TRUE(MappedFile::open(folder / "empty").bytes().empty());
}

TEST(MappedFile, RefusesWhatIsNoFile) {
  const TempDir folder;
  expect_error(ErrorKind::not_found, {"absent"}, [&] { MappedFile::open(folder / "absent"); });
  write_file(folder / "f", "x");
  expect_error(ErrorKind::not_found, {"f/x"}, [&] { MappedFile::open(folder / "f/x"); });
  expect_error(ErrorKind::io, {"folder"}, [&] { MappedFile::open(folder.path()); });
  expect_error(ErrorKind::io, {"regular"}, [] { MappedFile::open("/dev/null"); });
}

}  // namespace
}  // namespace quarrel
