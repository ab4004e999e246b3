// Models in several files: parts are found beside each other and must agree.
#include <gtest/gtest.h>

#include "gguf/file.h"
#include "support/temp_dir.h"
#include "unit/gguf_support.h"

namespace quarrel {
namespace {

using test::as_text;
using test::expect_error;
using test::Raw;
using test::TempDir;
using test::write_file;

struct PartSpec {
  std::uint16_t number = 0;
  std::uint16_t count = 3;
  std::int32_t tensors = 3;
  std::string tensor = "t";
};

std::string part_bytes(const PartSpec& spec) {
  Raw raw;
  raw.header(1, 3).text("split.no").u32(2).number(spec.number).text("split.count").u32(2).number(spec.count);
  raw.text("split.tensors.count").u32(5).number(spec.tensors);
  raw.tensor(spec.tensor, {1}, 0, 0).align().number(static_cast<float>(spec.number));
  return std::string(as_text(raw.bytes));
}

// m-00001-of-00003.gguf and its sisters, with tensors t0, t1, t2.
class GgufSplit : public ::testing::Test {
 protected:
  GgufSplit() {
    for (std::uint16_t i = 0; i < 3; ++i) put({.number = i, .tensor = "t" + std::to_string(i)});
  }
  std::filesystem::path part(int number) const {
    return folder_ / ("m-0000" + std::to_string(number + 1) + "-of-00003.gguf");
  }
  void put(const PartSpec& spec) { write_file(part(spec.number), part_bytes(spec)); }

  TempDir folder_;
};

TEST_F(GgufSplit, AnyPartOpensTheWholeModel) {
  for (int given = 0; given < 3; ++given) {
    const GgufFile file = GgufFile::open(part(given));
    EXPECT_EQ(file.part_count(), 3U);
    EXPECT_EQ(file.path(), part(0));
    ASSERT_EQ(file.tensors().size(), 3U);
    EXPECT_EQ(file.unsigned_integer("split.no"), 0U);
    for (int i = 0; i < 3; ++i) {
      const GgufTensor* tensor = file.find_tensor("t" + std::to_string(i));
      ASSERT_NE(tensor, nullptr);
      EXPECT_EQ(tensor->part, static_cast<std::uint32_t>(i));
      float value = -1;
      std::memcpy(&value, file.data(*tensor), sizeof(value));
      EXPECT_EQ(value, static_cast<float>(i));
    }
    EXPECT_EQ(file.file_bytes(), 3 * part_bytes({.tensor = "t0"}).size());
  }
}

TEST_F(GgufSplit, AMissingSisterIsNamed) {
  std::filesystem::remove(part(1));
  expect_error(ErrorKind::not_found, {"part 2", "3 parts", "m-00002-of-00003.gguf"}, [&] { GgufFile::open(part(0)); });
}

TEST_F(GgufSplit, AWrongNumberIsRefused) {
  write_file(part(1), part_bytes({.number = 2, .tensor = "t1"}));
  expect_error(ErrorKind::bad_file, {"m-00002-of", "split.no", "at byte 24"}, [&] { GgufFile::open(part(0)); });
}

TEST_F(GgufSplit, AWrongCountIsRefused) {
  put({.number = 2, .count = 4, .tensor = "t2"});
  expect_error(ErrorKind::bad_file, {"m-00003-of", "split.count", "4"}, [&] { GgufFile::open(part(0)); });
}

TEST_F(GgufSplit, AWrongNumberOfTensorsIsRefused) {
  put({.number = 0, .tensors = 4, .tensor = "t0"});
  expect_error(ErrorKind::bad_file, {"split.tensors.count", "4", "at byte"}, [&] { GgufFile::open(part(0)); });
}

TEST_F(GgufSplit, ATensorInTwoPartsIsRefused) {
  put({.number = 2, .tensor = "t0"});
  expect_error(ErrorKind::bad_file, {"m-00003-of", "tensor 't0'", "name at byte"}, [&] { GgufFile::open(part(0)); });
}

TEST_F(GgufSplit, ADamagedSisterIsNamed) {
  write_file(part(2), "GGUF\3");
  expect_error(ErrorKind::bad_file, {"m-00003-of", "version", "at byte 4"}, [&] { GgufFile::open(part(0)); });
}

TEST_F(GgufSplit, MissingKeysAreNamed) {
  Raw raw;
  raw.header(0, 0);
  write_file(part(0), as_text(raw.bytes));
  expect_error(ErrorKind::bad_file, {"split.count", "missing"}, [&] { GgufFile::open(part(0)); });
}

TEST_F(GgufSplit, APartUnderAnotherNameIsRefused) {
  write_file(folder_ / "renamed.gguf", part_bytes({}));
  expect_error(ErrorKind::bad_file, {"renamed.gguf", "split.count", "one of 3 parts"},
               [&] { GgufFile::open(folder_ / "renamed.gguf"); });
}

TEST_F(GgufSplit, OnePartOfOneNeedsNoKeys) {
  Raw raw;
  raw.header(0, 0);
  write_file(folder_ / "one-00001-of-00001.gguf", as_text(raw.bytes));
  EXPECT_EQ(GgufFile::open(folder_ / "one-00001-of-00001.gguf").part_count(), 1U);
}

TEST_F(GgufSplit, NamesThatOnlyResembleAPartAreOrdinaryFiles) {
  Raw raw;
  raw.header(0, 0);
  for (const char* name : {"a-00000-of-00002.gguf", "a-00003-of-00002.gguf", "a-0000x-of-00002.gguf",
                           "a-00001-of-00002.bin", "a_00001-of-00002.gguf", "a-+0001-of-00002.gguf"}) {
    write_file(folder_ / name, as_text(raw.bytes));
    EXPECT_EQ(GgufFile::open(folder_ / name).part_count(), 1U) << name;
  }
}

}  // namespace
}  // namespace quarrel
