// Well-formed files: what the writer writes the reader reads, and the freedoms the format gives are all accepted.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "gguf/file.h"
#include "gguf/writer.h"
#include "support/temp_dir.h"
#include "unit/gguf_support.h"

namespace quarrel {
namespace {

using test::expect_error;
using test::Raw;
using test::TempDir;

GgufWriter small_writer(std::uint32_t alignment = 32) {
  GgufWriter writer(alignment);
  writer.put_string("general.architecture", "toy");
  writer.put_u32("toy.block_count", 2);
  writer.add_tensor("a", {3}, std::vector<float>{1, 2, 3});
  writer.add_tensor("b", {2, 2}, std::vector<float>{4, 5, 6, 7});
  return writer;
}

std::vector<float> floats(const GgufFile& file, std::string_view name) {
  const GgufTensor* tensor = file.find_tensor(name);
  if (tensor == nullptr) return {};
  std::vector<float> values(tensor->elements());
  std::memcpy(values.data(), file.data(*tensor), tensor->bytes);
  return values;
}

TEST(GgufFile, RoundTripOfTheWritersKinds) {
  GgufWriter writer;
  writer.put_u32("u32", 4'000'000'000U);
  writer.put_i32("i32", -5);
  writer.put_u64("u64", std::numeric_limits<std::uint64_t>::max());
  writer.put_f32("f32", 0.5F);
  writer.put_bool("yes", true);
  writer.put_bool("no", false);
  writer.put_string("text", "h\xc3\xa9llo");
  writer.put_strings("texts", std::vector<std::string>{"a", "", std::string("b\0c", 3)});
  writer.put_f32s("f32s", std::vector<float>{1.5F, -2.5F});
  writer.put_i32s("i32s", std::vector<std::int32_t>{1, -2, 3});
  writer.put_strings("none", {});
  const auto bytes = writer.to_bytes();
  const GgufFile file = GgufFile::view(bytes, "memory");

  EXPECT_EQ(file.version(), 3U);
  EXPECT_EQ(file.alignment(), 32U);
  EXPECT_EQ(file.entries().size(), 11U);
  EXPECT_EQ(file.unsigned_integer("u32"), 4'000'000'000U);
  EXPECT_EQ(file.integer("u32"), 4'000'000'000);
  EXPECT_EQ(file.integer("i32"), -5);
  EXPECT_EQ(file.number("i32"), -5.0);
  EXPECT_EQ(file.unsigned_integer("u64"), std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(file.number("f32"), 0.5);
  EXPECT_EQ(file.boolean("yes"), true);
  EXPECT_EQ(file.boolean("no"), false);
  EXPECT_EQ(file.string("text"), "h\xc3\xa9llo");
  const auto texts = file.strings("texts").value();
  ASSERT_EQ(texts.size(), 3U);
  EXPECT_EQ(texts[2], std::string_view("b\0c", 3));
  const GgufNumbers f32s = file.numbers("f32s").value();
  ASSERT_EQ(f32s.count, 2U);
  EXPECT_EQ(f32s.as_double(1), -2.5);
  EXPECT_EQ(f32s.as_int(1), -2);
  EXPECT_EQ(file.numbers("i32s").value().as_int(1), -2);
  EXPECT_TRUE(file.strings("none").value().empty());

  EXPECT_EQ(file.find("absent"), nullptr);
  EXPECT_FALSE(file.unsigned_integer("absent").has_value());
  EXPECT_FALSE(file.strings("absent").has_value());
}

TEST(GgufFile, CopiedEntriesOfEveryKindKeepTheirBytes) {
  Raw raw;
  raw.header(0, 24);
  raw.text("u8").u32(0).u8(200);
  raw.text("i8").u32(1).number<std::int8_t>(-100);
  raw.text("u16").u32(2).number<std::uint16_t>(60000);
  raw.text("i16").u32(3).number<std::int16_t>(-30000);
  raw.text("u32").u32(4).u32(1);
  raw.text("i32").u32(5).number<std::int32_t>(-1);
  raw.text("f32").u32(6).number(1.25F);
  raw.text("bool").u32(7).u8(1);
  raw.text("string").u32(8).text("text");
  raw.text("u64").u32(10).u64(~0ULL);
  raw.text("i64").u32(11).number(std::numeric_limits<std::int64_t>::min());
  raw.text("f64").u32(12).number(0.1);
  raw.text("u8s").u32(9).u32(0).u64(2).u8(1).u8(255);
  raw.text("i8s").u32(9).u32(1).u64(1).number<std::int8_t>(-1);
  raw.text("u16s").u32(9).u32(2).u64(1).number<std::uint16_t>(65535);
  raw.text("i16s").u32(9).u32(3).u64(1).number<std::int16_t>(-2);
  raw.text("u32s").u32(9).u32(4).u64(1).u32(~0U);
  raw.text("i32s").u32(9).u32(5).u64(1).number<std::int32_t>(-3);
  raw.text("f32s").u32(9).u32(6).u64(2).number(1e30F).number(std::nanf(""));
  raw.text("bools").u32(9).u32(7).u64(2).u8(0).u8(1);
  raw.text("strings").u32(9).u32(8).u64(2).text("x").text("");
  raw.text("u64s").u32(9).u32(10).u64(1).u64(~0ULL);
  raw.text("i64s").u32(9).u32(11).u64(1).number(std::numeric_limits<std::int64_t>::min());
  raw.text("f64s").u32(9).u32(12).u64(3).number(-1e300).number(1e300).number(2.9);
  raw.align();
  const GgufFile file = GgufFile::view(raw.bytes, "raw");
  EXPECT_EQ(file.unsigned_integer("u8"), 200U);
  EXPECT_EQ(file.integer("i8"), -100);
  EXPECT_EQ(file.unsigned_integer("u16"), 60000U);
  EXPECT_EQ(file.integer("i16"), -30000);
  EXPECT_EQ(file.integer("i64"), std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(file.number("f64"), 0.1);
  EXPECT_EQ(file.numbers("u8s").value().as_int(1), 255);
  EXPECT_EQ(file.numbers("i8s").value().as_int(0), -1);
  EXPECT_EQ(file.numbers("u16s").value().as_double(0), 65535.0);
  EXPECT_EQ(file.numbers("u32s").value().as_int(0), 4294967295);
  EXPECT_EQ(file.numbers("f32s").value().as_int(0), std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(file.numbers("f32s").value().as_int(1), 0);
  EXPECT_EQ(file.numbers("bools").value().as_int(1), 1);
  EXPECT_EQ(file.numbers("u64s").value().as_int(0), std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(file.numbers("f64s").value().as_int(0), std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(file.numbers("f64s").value().as_int(2), 2);

  GgufWriter writer;
  for (const GgufEntry& entry : file.entries()) writer.put_entry(entry);
  EXPECT_EQ(writer.to_bytes(), raw.bytes);
}

TEST(GgufFile, AskingForAnotherKindNamesKeyAndBothKinds) {
  GgufWriter writer;
  writer.put_string("text", "x");
  writer.put_i32("negative", -1);
  writer.put_u64("huge", ~0ULL);
  writer.put_f32s("list", std::vector<float>{1});
  writer.put_f32("float", 3);
  const auto bytes = writer.to_bytes();
  const GgufFile file = GgufFile::view(bytes, "memory");
  const auto bad = ErrorKind::bad_file;
  expect_error(bad, {"'text'", "unsigned integer", "string", "at byte 24"}, [&] { file.unsigned_integer("text"); });
  expect_error(bad, {"'negative'", "-1"}, [&] { file.unsigned_integer("negative"); });
  expect_error(bad, {"'huge'"}, [&] { file.integer("huge"); });
  expect_error(bad, {"'list'", "string", "array of f32"}, [&] { file.string("list"); });
  expect_error(bad, {"'float'", "integer", "f32"}, [&] { file.integer("float"); });
  expect_error(bad, {"'text'", "number", "string"}, [&] { file.number("text"); });
  expect_error(bad, {"'float'", "boolean", "f32"}, [&] { file.boolean("float"); });
  expect_error(bad, {"'list'", "array of strings", "array of f32"}, [&] { file.strings("list"); });
  expect_error(bad, {"'text'", "array of numbers", "string"}, [&] { file.numbers("text"); });
}

TEST(GgufFile, TensorsOfEveryTypeRoundTripThroughAFile) {
  const TempDir folder;
  GgufWriter writer;
  std::uint8_t seed = 1;
  for (const TypeInfo& info : all_types()) {
    writer.add_tensor(info.name, info.type, {info.block_weights, 3}, [seed](std::span<std::byte> bytes) {
      for (std::byte& byte : bytes) byte = std::byte{seed};
    });
    ++seed;
  }
  const auto path = folder / "types.gguf";
  writer.write(path);
  const GgufFile file = GgufFile::open(path);
  EXPECT_EQ(file.path(), path);
  EXPECT_EQ(file.file_bytes(), std::filesystem::file_size(path));
  EXPECT_EQ(file.part_count(), 1U);
  seed = 1;
  for (const TypeInfo& info : all_types()) {
    const GgufTensor* tensor = file.find_tensor(info.name);
    ASSERT_NE(tensor, nullptr) << info.name;
    EXPECT_EQ(tensor->type, info.type);
    EXPECT_EQ(tensor->bytes, 3U * info.block_bytes);
    EXPECT_EQ(tensor->elements(), 3U * info.block_weights);
    EXPECT_EQ(tensor->offset % 32, 0U);
    EXPECT_EQ(file.data(*tensor)[tensor->bytes - 1], std::byte{seed});
    ++seed;
    file.release_pages(*tensor);
    EXPECT_EQ(*file.data(*tensor), *(file.data(*tensor) + 1));
  }
  EXPECT_EQ(file.find_tensor("absent"), nullptr);
}

TEST(GgufFile, ScalarsAndFourDimensionsLoad) {
  GgufWriter writer;
  writer.add_tensor("scalar", {}, std::vector<float>{42});
  writer.add_tensor("four", {2, 1, 2, 1}, std::vector<float>{1, 2, 3, 4});
  const auto bytes = writer.to_bytes();
  const GgufFile file = GgufFile::view(bytes, "memory");
  EXPECT_EQ(file.find_tensor("scalar")->dimensions, 0U);
  EXPECT_EQ(floats(file, "scalar"), std::vector<float>{42});
  EXPECT_EQ(file.find_tensor("four")->shape, (std::array<std::uint64_t, 4>{2, 1, 2, 1}));
}

TEST(GgufFile, EveryAlignmentLoads) {
  for (std::uint32_t alignment = 1; alignment <= 65'536; alignment *= 2) {
    const auto bytes = small_writer(alignment).to_bytes();
    const GgufFile file = GgufFile::view(bytes, "memory");
    EXPECT_EQ(file.alignment(), alignment);
    EXPECT_EQ(file.find_tensor("b")->offset % alignment, 0U);
    EXPECT_EQ(floats(file, "b"), (std::vector<float>{4, 5, 6, 7})) << alignment;
  }
}

TEST(GgufFile, GapsBetweenTensorsLoad) {
  Raw raw;
  raw.header(2, 0).tensor("a", {1}, 0, 64).tensor("b", {1}, 0, 320).align();
  const std::size_t start = raw.bytes.size();
  raw.data(400);
  const GgufFile file = GgufFile::view(raw.bytes, "memory");
  EXPECT_EQ(file.find_tensor("a")->offset, start + 64);
  EXPECT_EQ(file.find_tensor("b")->offset, start + 320);
}

TEST(GgufFile, TensorsInAnyOrderLoad) {
  Raw raw;
  raw.header(3, 0).tensor("c", {1}, 0, 64).tensor("a", {1}, 0, 0).tensor("b", {8}, 0, 32).align();
  raw.number(1.0F).align().number(2.0F).align().number(3.0F);
  const GgufFile file = GgufFile::view(raw.bytes, "memory");
  EXPECT_EQ(file.tensors()[0].name, "c");
  EXPECT_EQ(floats(file, "a")[0], 1.0F);
  EXPECT_EQ(floats(file, "b")[0], 2.0F);
  EXPECT_EQ(floats(file, "c")[0], 3.0F);
}

TEST(GgufFile, VersionTwoLoads) {
  Raw raw;
  raw.header(1, 1, 2).text("k").u32(4).u32(7).tensor("a", {1}, 0, 0).align().data(4);
  const GgufFile file = GgufFile::view(raw.bytes, "memory");
  EXPECT_EQ(file.version(), 2U);
  EXPECT_EQ(file.unsigned_integer("k"), 7U);
}

TEST(GgufFile, AFileWithoutTensorsNeedsNoPadding) {
  Raw raw;
  raw.header(0, 1).text("k").u32(4).u32(7);
  EXPECT_TRUE(GgufFile::view(raw.bytes, "memory").tensors().empty());
}

TEST(GgufFile, KeysNeedNotBeUtf8AndMessagesStayPrintable) {
  Raw raw;
  raw.header(0, 1).text("k\xff\x1b[31m").u32(4).u32(7);
  const GgufFile file = GgufFile::view(raw.bytes, "memory");
  EXPECT_EQ(file.unsigned_integer("k\xff\x1b[31m"), 7U);
  expect_error(ErrorKind::bad_file, {"'k\\xff\\x1b[31m'"}, [&] { file.string("k\xff\x1b[31m"); });
}

TEST(GgufFile, MovingKeepsViewsValid) {
  const TempDir folder;
  small_writer().write(folder / "m.gguf");
  GgufFile first = GgufFile::open(folder / "m.gguf");
  const GgufFile second = std::move(first);
  EXPECT_EQ(second.string("general.architecture"), "toy");
  EXPECT_EQ(floats(second, "a"), (std::vector<float>{1, 2, 3}));
}

TEST(GgufFile, AbsentFileDirectoryAndTextFile) {
  const TempDir folder;
  expect_error(ErrorKind::not_found, {"absent.gguf"}, [&] { GgufFile::open(folder / "absent.gguf"); });
  expect_error(ErrorKind::io, {"folder"}, [&] { GgufFile::open(folder.path()); });
  test::write_file(folder / "notes.txt", "dear diary");
  expect_error(ErrorKind::bad_file, {"notes.txt", "not a GGUF file", "'dear'"},
               [&] { GgufFile::open(folder / "notes.txt"); });
  test::write_file(folder / "empty.gguf", "");
  expect_error(ErrorKind::bad_file, {"empty.gguf", "not a GGUF file"}, [&] { GgufFile::open(folder / "empty.gguf"); });
}

TEST(GgufWriter, RefusesWhatAReaderWouldRefuse) {
  const auto bad = ErrorKind::bad_input;
  expect_error(bad, {"alignment"}, [] { GgufWriter(24); });
  expect_error(bad, {"alignment"}, [] { GgufWriter(1 << 17); });
  GgufWriter writer = small_writer();
  expect_error(bad, {"empty"}, [&] { writer.put_u32("", 1); });
  expect_error(bad, {"zero byte"}, [&] { writer.put_u32(std::string_view("a\0b", 3), 1); });
  expect_error(bad, {"twice", "toy.block_count"}, [&] { writer.put_u32("toy.block_count", 1); });
  expect_error(bad, {"alignment"}, [&] { writer.put_u32("general.alignment", 64); });
  expect_error(bad, {"twice", "'a'"}, [&] { writer.add_tensor("a", {1}, std::vector<float>{1}); });
  expect_error(bad, {"127"}, [&] { writer.add_tensor(std::string(128, 'x'), {1}, std::vector<float>{1}); });
  expect_error(bad, {"shape"}, [&] { writer.add_tensor("c", {2}, std::vector<float>{1}); });
  const auto nothing = [](std::span<std::byte>) {};
  expect_error(bad, {"'d'", "zero"}, [&] { writer.add_tensor("d", QuantType::f32, {0}, nothing); });
  expect_error(bad, {"'d'", "Q8_0"}, [&] { writer.add_tensor("d", QuantType::q8_0, {33}, nothing); });
  expect_error(bad, {"'d'", "large"}, [&] { writer.add_tensor("d", QuantType::f32, {1ULL << 62}, nothing); });
  expect_error(bad, {"'d'", "4"}, [&] { writer.add_tensor("d", QuantType::f32, {1, 1, 1, 1, 1}, nothing); });
}

TEST(GgufWriter, AFailureLeavesTheOldFileAndNothingElse) {
  const TempDir folder;
  const auto path = folder / "m.gguf";
  small_writer().write(path);
  const std::string before = test::read_file(path);
  GgufWriter failing;
  failing.add_tensor("a", QuantType::f32, {1}, [](std::span<std::byte>) { fail(ErrorKind::io, "no more"); });
  expect_error(ErrorKind::io, {"no more"}, [&] { failing.write(path); });
  EXPECT_EQ(test::read_file(path), before);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
  expect_error(ErrorKind::io, {"cannot write"}, [&] { failing.write(folder / "no/such/folder.gguf"); });
}

}  // namespace
}  // namespace quarrel
