// Damaged and hostile files: each is refused with a message that names the field and the byte, none crashes.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "gguf/file.h"
#include "gguf/writer.h"
#include "unit/gguf_support.h"

namespace quarrel {
namespace {

using test::Raw;

constexpr std::uint64_t k2To31 = 1ULL << 31;
constexpr std::uint64_t k2To32 = 1ULL << 32;
constexpr std::uint64_t k2To61 = 1ULL << 61;
constexpr std::uint64_t k2To63 = 1ULL << 63;
constexpr std::uint64_t kMost = ~0ULL;

struct Malformed {
  std::string what;
  std::string field;  // as the message must spell it, subject included
  Raw raw;            // with a mark at the faulty field
  ErrorKind kind = ErrorKind::bad_file;
};

Raw with_key(std::string_view key = "a.b") { return Raw().header(0, 1).text(key); }
Raw with_tensor() { return Raw().header(1, 0).text("t"); }

void add_header_cases(std::vector<Malformed>& cases) {
  const auto old = ErrorKind::unsupported;
  cases.push_back({"version 0", "header: version", Raw().plain("GGUF").mark().u32(0).u64(0).u64(0), old});
  cases.push_back({"version 1", "header: version", Raw().plain("GGUF").mark().u32(1).u32(0).u32(0), old});
  cases.push_back({"version 4", "header: version", Raw().plain("GGUF").mark().u32(4).u64(0).u64(0), old});
  cases.push_back({"version -1", "header: version", Raw().plain("GGUF").mark().u32(~0U).u64(0).u64(0), old});
  for (const std::uint32_t version : {2U, 3U}) {
    cases.push_back(
        {"big-endian", "header: version", Raw().plain("GGUF").mark().u32(version << 24).u64(0).u64(0), old});
  }
  cases.push_back({"magic only", "header: version", Raw().plain("GGUF").mark()});
  cases.push_back({"version cut", "header: version", Raw().plain("GGUF").mark().u8(3)});
  cases.push_back({"tensor count cut", "header: tensor count", Raw().plain("GGUF").u32(3).mark().u32(0)});
  cases.push_back({"key count cut", "header: key count", Raw().plain("GGUF").u32(3).u64(0).mark().u32(0)});
  for (const std::uint64_t count : {std::uint64_t{65'537}, k2To31, k2To32, k2To63, kMost}) {
    cases.push_back({"tensor count", "header: tensor count", Raw().plain("GGUF").u32(3).mark().u64(count).u64(0)});
    cases.push_back({"key count", "header: key count", Raw().plain("GGUF").u32(3).u64(0).mark().u64(count)});
  }
  cases.push_back({"keys announced, none there", "key 0: key length", Raw().header(0, 65'536).mark()});
  cases.push_back({"tensors announced, none there", "tensor 0: name length", Raw().header(65'536, 0).mark()});
  cases.push_back({"second key absent", "key 1: key length", with_key().u32(4).u32(1).mark()});
  cases.back().raw.bytes[16] = std::byte{2};
}

void add_key_cases(std::vector<Malformed>& cases) {
  for (const std::uint64_t length : {std::uint64_t{65'537}, k2To31, k2To32, k2To63, kMost, std::uint64_t{9}}) {
    cases.push_back({"key length", "key 0: key length", Raw().header(0, 1).mark().u64(length).plain("12345678")});
  }
  cases.push_back({"empty key", "key 0: key length", Raw().header(0, 1).mark().u64(0).u32(4).u32(1)});
  cases.push_back({"key length cut", "key 0: key length", Raw().header(0, 1).mark().u32(1)});
  cases.push_back({"zero byte in key", "key 0: key", Raw().header(0, 1).mark().text({"a\0b", 3}).u32(4).u32(1)});
  cases.push_back(
      {"key twice", "key 2 ('a.b'): key",
       Raw().header(0, 3).text("a.b").u32(4).u32(1).text("c").u32(4).u32(1).mark().text("a.b").u32(0).u8(1)});
  for (const std::uint32_t kind : {13U, 255U, 0x80000000U, ~0U}) {
    cases.push_back({"value kind", "key 0 ('a.b'): value kind", with_key().mark().u32(kind).u64(0)});
    cases.push_back({"array kind", "key 0 ('a.b'): array kind", with_key().u32(9).mark().u32(kind).u64(0)});
  }
  cases.push_back({"value kind cut", "key 0 ('a.b'): value kind", with_key().mark().u8(1)});
  const std::vector<std::pair<std::uint32_t, std::size_t>> sizes{{0, 1}, {1, 1}, {2, 2},  {3, 2},  {4, 4}, {5, 4},
                                                                 {6, 4}, {7, 1}, {10, 8}, {11, 8}, {12, 8}};
  for (const auto& [kind, size] : sizes) {
    cases.push_back({"value cut", "key 0 ('a.b'): value", with_key().u32(kind).mark().data(size - 1)});
    const Raw one_short = with_key().u32(9).u32(kind).mark().u64(3).data(size * 3 - 1);
    cases.push_back({"array one byte short", "key 0 ('a.b'): array length", one_short});
  }
  cases.push_back({"boolean of 2", "key 0 ('a.b'): value", with_key().u32(7).mark().u8(2)});
  cases.push_back(
      {"boolean of 2 in an array", "key 0 ('a.b'): array at", with_key().u32(9).u32(7).u64(2).u8(1).mark().u8(2)});
}

void add_string_and_array_cases(std::vector<Malformed>& cases) {
  const std::uint64_t limit = 64ULL << 20;
  for (const std::uint64_t length : {limit + 1, k2To31, k2To32, k2To63, kMost, std::uint64_t{9}}) {
    const Raw lone = with_key().u32(8).mark().u64(length).plain("12345678");
    cases.push_back({"string length", "key 0 ('a.b'): string length", lone});
    const Raw listed = with_key().u32(9).u32(8).u64(1).mark().u64(length).plain("12345678");
    cases.push_back({"string length in an array", "key 0 ('a.b'): string length", listed});
  }
  cases.push_back({"string length cut", "key 0 ('a.b'): string length", with_key().u32(8).mark().u32(0)});
  cases.push_back({"second string absent", "key 0 ('a.b'): string length",
                   with_key().u32(9).u32(8).u64(2).text("12345678").mark()});
  cases.push_back(
      {"array of arrays", "key 0 ('a.b'): array kind", with_key().u32(9).mark().u32(9).u64(1).u32(0).u64(0)});
  cases.push_back({"array kind cut", "key 0 ('a.b'): array kind", with_key().u32(9).mark().u8(1)});
  cases.push_back({"array length cut", "key 0 ('a.b'): array length", with_key().u32(9).u32(4).mark().u32(1)});
  for (const std::uint64_t count : {k2To31, k2To32, k2To61, k2To61 + 1, k2To63, kMost}) {
    cases.push_back(
        {"array length", "key 0 ('a.b'): array length", with_key().u32(9).u32(10).mark().u64(count).u64(0)});
    cases.push_back({"array length", "key 0 ('a.b'): array length", with_key().u32(9).u32(8).mark().u64(count).u64(0)});
    cases.push_back({"array length", "key 0 ('a.b'): array length", with_key().u32(9).u32(0).mark().u64(count).u64(0)});
  }
  for (const std::uint32_t alignment : {0U, 3U, 24U, 33U, 131'072U, 0x80000000U, ~0U}) {
    const Raw raw = with_key("general.alignment").u32(4).mark().u32(alignment);
    cases.push_back({"alignment", "key 0 ('general.alignment'): value", raw});
  }
  const std::string alignment_kind = "key 0 ('general.alignment'): value kind";
  cases.push_back({"alignment as u64", alignment_kind, with_key("general.alignment").mark().u32(10).u64(32)});
  cases.push_back({"alignment as i32", alignment_kind, with_key("general.alignment").mark().u32(5).u32(32)});
  cases.push_back({"alignment as string", alignment_kind, with_key("general.alignment").mark().u32(8).text("32")});
  cases.push_back(
      {"alignment cut", "key 0 ('general.alignment'): value", with_key("general.alignment").u32(4).mark().u8(32)});
}

void add_tensor_cases(std::vector<Malformed>& cases) {
  for (const std::uint64_t length : {std::uint64_t{128}, k2To31, k2To32, k2To63, kMost, std::uint64_t{9}}) {
    cases.push_back({"name length", "tensor 0: name length", Raw().header(1, 0).mark().u64(length).plain("12345678")});
  }
  cases.push_back(
      {"empty name", "tensor 0: name length", Raw().header(1, 0).mark().tensor("", {1}, 0, 0).align().data(4)});
  cases.push_back({"zero byte in name", "tensor 0: name",
                   Raw().header(1, 0).mark().tensor({"a\0b", 3}, {1}, 0, 0).align().data(4)});
  for (const std::uint32_t count : {5U, 0x80000000U, ~0U}) {
    cases.push_back({"dimensions", "tensor 't': dimensions", with_tensor().mark().u32(count).data(64)});
  }
  cases.push_back({"dimensions cut", "tensor 't': dimensions", with_tensor().mark().u8(1)});
  cases.push_back({"shape cut", "tensor 't': shape", with_tensor().u32(2).u64(1).mark().u32(1)});
  cases.push_back({"type cut", "tensor 't': type", with_tensor().u32(1).u64(1).mark().u8(0)});
  cases.push_back({"offset cut", "tensor 't': offset", with_tensor().u32(1).u64(1).u32(0).mark().u32(0)});
  for (std::uint32_t zero = 0; zero < 4; ++zero) {
    Raw raw = with_tensor().u32(4);
    for (std::uint32_t i = 0; i < 4; ++i) {
      if (i == zero) raw.mark();
      raw.u64(i == zero ? 0 : i < zero ? 1 : k2To63);
    }
    cases.push_back({"zero dimension", "tensor 't': shape", raw.u32(0).u64(0).align().data(64)});
  }
  const auto shaped = [](std::uint64_t a, std::uint64_t b) {
    return with_tensor().u32(2).u64(a).mark().u64(b).u32(0).u64(0);
  };
  cases.push_back({"product wraps to zero", "tensor 't': shape", shaped(k2To32, k2To32)});
  cases.push_back({"product wraps to two", "tensor 't': shape", shaped(k2To63 + 1, 2)});
  cases.push_back({"product of the largest", "tensor 't': shape", shaped(kMost, kMost)});
  const Raw wrapping = with_tensor().u32(1).mark().u64(1ULL << 62).u32(0).u64(0);
  cases.push_back({"byte size wraps", "tensor 't': shape", wrapping});
  for (const std::uint32_t type : {5U, 9U, 24U, 31U, 32U, 33U, 36U, 1000U, 0x80000000U, ~0U}) {
    const Raw raw = with_tensor().u32(1).u64(256).mark().u32(type).u64(0).align().data(2048);
    cases.push_back({"type number " + std::to_string(type), "tensor 't': type", raw, ErrorKind::unsupported});
  }
  const auto row = [](std::uint64_t length, std::uint32_t type) {
    return with_tensor().u32(1).mark().u64(length).u32(type).u64(0).align().data(2048);
  };
  cases.push_back({"row of 33 in Q8_0", "tensor 't': shape", row(33, 8)});
  cases.push_back({"row of 1 in Q4_0", "tensor 't': shape", row(1, 2)});
  cases.push_back({"row of 255 in Q4_K", "tensor 't': shape", row(255, 12)});
  cases.push_back({"row of 288 in Q6_K", "tensor 't': shape", row(288, 14)});
  cases.push_back({"scalar in Q4_0", "tensor 't': shape", with_tensor().u32(0).mark().u32(2).u64(0).align().data(64)});
}

void add_placement_cases(std::vector<Malformed>& cases) {
  const auto at = [](std::uint64_t offset, std::size_t data) {
    return with_tensor().u32(1).u64(4).u32(0).mark().u64(offset).align().data(data);
  };
  for (const std::uint64_t offset : {1ULL, 8ULL, 16ULL, 31ULL, 33ULL}) {
    cases.push_back({"offset not aligned", "tensor 't': offset", at(offset, 256)});
  }
  for (const std::uint64_t offset : {32ULL, 1ULL << 20, 1ULL << 31, 1ULL << 32, 1ULL << 63, ~0ULL - 31}) {
    cases.push_back({"offset beyond the file", "tensor 't': offset", at(offset, 32)});
  }
  cases.push_back({"data one byte short", "tensor 't': offset", at(0, 15)});
  cases.push_back({"no data", "tensor 't': offset", at(0, 0)});
  cases.push_back({"padding missing too", "tensor 't': offset", with_tensor().u32(1).u64(4).u32(0).mark().u64(0)});
  const Raw misaligned = Raw().header(1, 1).text("general.alignment").u32(4).u32(64).text("t").u32(1).u64(4).u32(0);
  cases.push_back(
      {"offset not aligned to 64", "tensor 't': offset", Raw(misaligned).mark().u64(32).align(64).data(256)});
  const auto pair = [](std::uint64_t first, std::uint64_t second) {
    return Raw()
        .header(2, 0)
        .tensor("s", {16}, 0, first)
        .text("t")
        .u32(1)
        .u64(16)
        .u32(0)
        .mark()
        .u64(second)
        .align()
        .data(512);
  };
  cases.push_back({"same data", "tensor 't': offset", pair(0, 0)});
  cases.push_back({"overlapping data", "tensor 't': offset", pair(0, 32)});
  const Raw third = Raw().header(3, 0).tensor("r", {8}, 0, 64).tensor("s", {8}, 0, 0).text("t").u32(1).u64(8).u32(0);
  cases.push_back(
      {"overlapping the first of three", "tensor 't': offset", Raw(third).mark().u64(64).align().data(512)});
  Raw twice = Raw().header(2, 0).tensor("t", {1}, 0, 0).u64(1);
  twice.mark().plain("t").u32(1).u64(1).u32(0).u64(32).align().data(64);
  cases.push_back({"name twice", "tensor 't': name", twice});
}

std::vector<Malformed> malformed_kinds() {
  std::vector<Malformed> cases;
  add_header_cases(cases);
  add_key_cases(cases);
  add_string_and_array_cases(cases);
  add_tensor_cases(cases);
  add_placement_cases(cases);
  return cases;
}

TEST(GgufMalformed, EachKindIsRefusedWithFieldAndOffset) {
  const auto cases = malformed_kinds();
  EXPECT_GE(cases.size(), 120U);
  for (const Malformed& bad : cases) {
    SCOPED_TRACE(bad.what);
    const auto thrown = test::thrown_by([&] { GgufFile::view(bad.raw.bytes, "bad.gguf"); });
    ASSERT_TRUE(thrown.happened);
    EXPECT_EQ(thrown.kind, bad.kind) << thrown.message;
    EXPECT_NE(thrown.message.find("'bad.gguf': " + bad.field), std::string::npos) << thrown.message;
    const std::string place = " at byte " + std::to_string(bad.raw.fault) + ":";
    EXPECT_NE(thrown.message.find(place), std::string::npos) << place << " is not in: " << thrown.message;
    EXPECT_LT(thrown.message.size(), 400U);
  }
}

TEST(GgufMalformed, AnUnknownTypeNamesTensorAndNumber) {
  const Raw raw = Raw().header(1, 0).tensor("blk.0.x", {256}, 77, 0).align().data(64);
  test::expect_error(ErrorKind::unsupported, {"'blk.0.x'", "77"}, [&] { GgufFile::view(raw.bytes, "m.gguf"); });
}

TEST(GgufMalformed, ACutFileSaysHowMuchIsMissing) {
  const Raw raw = Raw().header(2, 0).tensor("a", {25}, 0, 0).tensor("b", {25}, 0, 128).align().data(150);
  test::expect_error(ErrorKind::bad_file, {"tensor 'b'", "78 bytes are missing"},
                     [&] { GgufFile::view(raw.bytes, "m.gguf"); });
}

TEST(GgufMalformed, NotAGgufFile) {
  for (const std::string_view text : {"x", "GGU?", "GGML\3\0\0\0", "gguf\3\0\0\0", "PK\3\4 and more", "{\"a\": 1}"}) {
    const Raw raw = Raw().plain(text);
    test::expect_error(ErrorKind::bad_file, {"'m' is not a GGUF file", "magic at byte 0"},
                       [&] { GgufFile::view(raw.bytes, "m"); });
  }
  test::expect_error(ErrorKind::bad_file, {"empty"}, [] { GgufFile::view({}, "m"); });
  const Raw cut = Raw().plain("GG");
  test::expect_error(ErrorKind::bad_file, {"magic at byte 0"}, [&] { GgufFile::view(cut.bytes, "m"); });
}

std::vector<std::byte> small_file() {
  GgufWriter writer(64);
  writer.put_string("general.architecture", "toy");
  writer.put_u32("n", 7);
  writer.put_f32("eps", 1e-5F);
  writer.put_bool("flag", true);
  writer.put_strings("tokens", std::vector<std::string>{"a", "bc", "def"});
  writer.put_i32s("types", std::vector<std::int32_t>{1, 2, 3});
  writer.add_tensor("w", {4, 2}, std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8});
  writer.add_tensor("q", QuantType::q8_0, {32, 2}, [](std::span<std::byte>) {});
  return writer.to_bytes();
}

// Reads everything that a caller could reach, so that a wrong view is seen by the sanitizers.
std::uint64_t read_all(const GgufFile& file) {
  std::uint64_t sum = 0;
  for (const GgufEntry& entry : file.entries()) {
    if (const auto* text = std::get_if<std::string_view>(&entry.value)) {
      for (const char c : *text) sum += static_cast<unsigned char>(c);
    } else if (const auto* texts = std::get_if<std::vector<std::string_view>>(&entry.value)) {
      for (const auto& text_of_list : *texts) sum += text_of_list.size();
    } else if (const auto* numbers = std::get_if<GgufNumbers>(&entry.value)) {
      for (std::uint64_t i = 0; i < numbers->count; ++i) sum += static_cast<std::uint64_t>(numbers->as_int(i));
    }
    EXPECT_EQ(file.find(entry.key), &entry);
  }
  for (const GgufTensor& tensor : file.tensors()) {
    for (std::uint64_t i = 0; i < tensor.bytes; ++i) sum += static_cast<std::uint64_t>(file.data(tensor)[i]);
    EXPECT_EQ(file.find_tensor(tensor.name), &tensor);
  }
  return sum;
}

TEST(GgufMalformed, EveryTruncationIsRefused) {
  const auto bytes = small_file();
  const GgufFile whole = GgufFile::view(bytes, "whole");
  const GgufTensor& last = whole.tensors().back();
  for (std::size_t length = 0; length < last.offset + last.bytes; ++length) {
    // A copy of its own, so that reading one byte too far is seen.
    const std::vector<std::byte> cut(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(length));
    const auto thrown = test::thrown_by([&] { GgufFile::view(cut, "cut"); });
    ASSERT_TRUE(thrown.happened) << length;
    EXPECT_EQ(thrown.kind, ErrorKind::bad_file) << thrown.message;
  }
}

TEST(GgufMalformed, EveryFlippedBitLoadsOrIsRefused) {
  const auto bytes = small_file();
  const std::uint64_t metadata = GgufFile::view(bytes, "whole").tensors().front().offset;
  std::size_t loaded = 0;
  std::size_t refused = 0;
  for (std::size_t bit = 0; bit < metadata * 8; ++bit) {
    std::vector<std::byte> flipped = bytes;
    flipped[bit / 8] ^= std::byte{1} << (bit % 8);
    const auto thrown = test::thrown_by([&] {
      const GgufFile file = GgufFile::view(flipped, "flipped");
      read_all(file);
    });
    thrown.happened ? ++refused : ++loaded;
  }
  EXPECT_GT(loaded, 0U);
  EXPECT_GT(refused, 0U);
}

}  // namespace
}  // namespace quarrel
