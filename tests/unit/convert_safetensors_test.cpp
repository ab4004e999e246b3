// Safetensors files: what is read, and what is refused with which words.
#include <gtest/gtest.h>

#include "convert/safetensors.h"
#include "support/temp_dir.h"
#include "unit/convert_support.h"

namespace quarrel {
namespace {

using test::expect_error;
using test::safetensors_bytes;
using test::SafetensorsMaker;
using test::TempDir;
using test::write_file;

SafetensorsFile view(const std::string& bytes) {
  return SafetensorsFile::view(std::as_bytes(std::span(bytes)), "t.safetensors");
}

TEST(Safetensors, ReadsTensors) {
  SafetensorsMaker maker;
  maker.add("b", QuantType::f32, {2, 3}, {1, 2, 3, 4, 5, 6});
  maker.add("a", QuantType::bf16, {2}, {1, -2});
  maker.add("ids", "I64", {1}, std::string(8, '\0'));
  maker.add("none", "F16", {0, 4}, "");
  maker.add("one", "F16", {}, "ab");
  const std::string bytes = maker.bytes();
  const SafetensorsFile file = view(bytes);
  ASSERT_EQ(file.tensors().size(), 5U);
  const SafetensorsTensor* matrix = file.find("b");
  ASSERT_NE(matrix, nullptr);
  EXPECT_EQ(matrix->type, QuantType::f32);
  EXPECT_EQ(matrix->shape, (std::vector<std::uint64_t>{2, 3}));
  EXPECT_EQ(matrix->bytes, 24U);
  float last = 0;
  std::memcpy(&last, file.data(*matrix) + 20, sizeof(last));
  EXPECT_EQ(last, 6.0f);
  EXPECT_EQ(file.find("a")->type, QuantType::bf16);
  EXPECT_EQ(file.find("ids")->type, std::nullopt);
  EXPECT_EQ(file.find("ids")->dtype, "I64");
  EXPECT_EQ(file.find("none")->bytes, 0U);
  EXPECT_EQ(file.find("one")->bytes, 2U);
  EXPECT_EQ(file.find("c"), nullptr);
  EXPECT_TRUE(view(safetensors_bytes("{}   ", "")).tensors().empty());
}

struct Bad {
  const char* name;
  std::string header;
  std::vector<std::string> words;
  std::size_t data = 8;
};

TEST(Safetensors, RefusesMalformedHeaders) {
  const std::string good = R"("t":{"dtype":"F32","shape":[2],"data_offsets":[0,8]})";
  const std::vector<Bad> cases = {
      {"not JSON", "{\"t\":", {"not valid JSON"}},
      {"bad UTF-8", "{\"\xff\":{}}", {"not valid JSON"}},
      {"rubbish behind", "{} x", {"not valid JSON"}},
      {"an array", "[]", {"holds an array"}},
      {"a number", "7", {"holds a number"}},
      {"a tensor that is a number", R"({"t":7})", {"'t'", "holds a number"}},
      {"a tensor that is null", R"({"t":null})", {"'t'", "null"}},
      {"an empty name", R"({"":{}})", {"name has 0 bytes"}},
      {"a long name", "{\"" + std::string(600, 'n') + "\":{}}", {"600 bytes"}},
      {"a name twice", "{" + good + "," + good + "}", {"'t'", "twice"}},
      {"no dtype", R"({"t":{"shape":[2],"data_offsets":[0,8]}})", {"'t'", "dtype"}},
      {"no shape", R"({"t":{"dtype":"F32","data_offsets":[0,8]}})", {"'t'", "shape"}},
      {"no offsets", R"({"t":{"dtype":"F32","shape":[2]}})", {"'t'", "data_offsets"}},
      {"a field twice", R"({"t":{"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]}})", {"dtype", "twice"}},
      {"another field", R"({"t":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"x":"y"}})", {"'t'", "x"}},
      {"an unknown dtype", R"({"t":{"dtype":"F33","shape":[2],"data_offsets":[0,8]}})", {"'t'", "'F33'"}},
      {"a dtype that is a list", R"({"t":{"dtype":["F32"],"shape":[2],"data_offsets":[0,8]}})", {"dtype", "array"}},
      {"a negative extent", R"({"t":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", {"shape", "negative"}},
      {"half an extent", R"({"t":{"dtype":"F32","shape":[0.5],"data_offsets":[0,8]}})", {"shape", "fraction"}},
      {"an extent as text", R"({"t":{"dtype":"F32","shape":["2"],"data_offsets":[0,8]}})", {"shape", "string"}},
      {"too many dimensions", R"({"t":{"dtype":"F32","shape":[1,1,1,1,1,1,1,1,2],"data_offsets":[0,8]}})", {"8 dim"}},
      {"a shape that overflows",
       R"({"t":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})",
       {"'t'", "too large"}},
      {"a shape that wraps to fit",
       R"({"t":{"dtype":"F32","shape":[4611686018427387906],"data_offsets":[0,8]}})",
       {"'t'", "too large"}},
      {"one offset", R"({"t":{"dtype":"F32","shape":[2],"data_offsets":[0]}})", {"data_offsets"}},
      {"three offsets", R"({"t":{"dtype":"F32","shape":[2],"data_offsets":[0,8,8]}})", {"data_offsets", "two"}},
      {"offsets backwards", R"({"t":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", {"data_offsets"}},
      {"beyond the file", R"({"t":{"dtype":"F32","shape":[3],"data_offsets":[0,12]}})", {"[0, 12]", "8 bytes"}},
      {"an offset of 2^64",
       R"({"t":{"dtype":"F32","shape":[2],"data_offsets":[18446744073709551608,18446744073709551615]}})",
       {"data_offsets"}},
      {"sizes that differ", R"({"t":{"dtype":"F16","shape":[2],"data_offsets":[0,8]}})", {"8 bytes", "4 by"}},
      {"an overlap",
       R"({"t":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"u":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
       {"'u'", "overlap", "'t'"}},
      {"deep nesting", R"({"t":{"dtype":{"a":{"b":1}}}})", {"dtype", "object"}},
      {"metadata that nests", R"({"__metadata__":{"a":{"b":"c"}}})", {"__metadata__", "object"}},
  };
  for (const Bad& bad : cases) {
    SCOPED_TRACE(bad.name);
    const std::string bytes = safetensors_bytes(bad.header, std::string(bad.data, 'd'));
    expect_error(ErrorKind::bad_file, bad.words, [&] { view(bytes); });
  }
  EXPECT_NO_THROW(view(safetensors_bytes("{" + good + "}", std::string(8, 'd'))));
}

TEST(Safetensors, RefusesLengthsThatDoNotFit) {
  expect_error(ErrorKind::bad_file, {"7 bytes"}, [] { view("1234567"); });
  std::string bytes = safetensors_bytes("{}", "");
  bytes[0] = 3;
  expect_error(ErrorKind::bad_file, {"3 bytes", "after 2"}, [&] { view(bytes); });
  bytes[7] = '\x7f';
  expect_error(ErrorKind::bad_file, {"not a safetensors file"}, [&] { view(bytes); });
  // A megabyte of brackets neither recurses nor takes long.
  const std::string deep = safetensors_bytes("{\"t\":" + std::string(1 << 20, '['), "");
  expect_error(ErrorKind::bad_file, {"array"}, [&] { view(deep); });
}

class Sharded : public ::testing::Test {
 protected:
  Sharded() {
    for (const char* name : {"a", "b"}) {
      SafetensorsMaker maker;
      maker.add(name, QuantType::f32, {1}, {name[0] == 'a' ? 1.0f : 2.0f});
      write_file(folder_ / (std::string(name) + ".safetensors"), maker.bytes());
    }
  }
  void put_index(const std::string& text) { write_file(folder_ / "model.safetensors.index.json", text); }
  SafetensorsModel open() const { return SafetensorsModel::open(folder_.path()); }

  TempDir folder_;
};

TEST_F(Sharded, FindsTensorsInTheirFiles) {
  put_index(R"({"metadata":{"total_size":8},"weight_map":{"a":"a.safetensors","b":"b.safetensors"}})");
  const SafetensorsModel model = open();
  ASSERT_EQ(model.entries().size(), 2U);
  const auto entry = model.find("b");
  ASSERT_NE(entry.tensor, nullptr);
  EXPECT_EQ(entry.file->file()->path(), folder_ / "b.safetensors");
  float value = 0;
  std::memcpy(&value, entry.file->data(*entry.tensor), sizeof(value));
  EXPECT_EQ(value, 2.0f);
  EXPECT_EQ(model.find("c").tensor, nullptr);
}

TEST_F(Sharded, RefusesBadIndexes) {
  expect_error(ErrorKind::not_found, {"model.safetensors"}, [&] { open(); });
  put_index("{}");
  expect_error(ErrorKind::bad_file, {"weight_map"}, [&] { open(); });
  put_index(R"({"weight_map":{"a":"../a.safetensors"}})");
  expect_error(ErrorKind::bad_file, {"'a'", "'../a.safetensors'", "plain"}, [&] { open(); });
  for (const char* name : {"", ".", "..", "/etc/passwd", "x/a.safetensors", "x\\\\y"}) {
    put_index(std::string(R"({"weight_map":{"a":")") + name + "\"}}");
    expect_error(ErrorKind::bad_file, {"'a'", "plain"}, [&] { open(); });
  }
  put_index(R"({"weight_map":{"a":7}})");
  expect_error(ErrorKind::bad_file, {"'a'"}, [&] { open(); });
  put_index(R"({"weight_map":{"a":"b.safetensors"}})");
  expect_error(ErrorKind::bad_file, {"'a'", "'b.safetensors'"}, [&] { open(); });
  put_index(R"({"weight_map":{"a":"missing.safetensors"}})");
  expect_error(ErrorKind::not_found, {"missing.safetensors"}, [&] { open(); });
  put_index("{\"weight_map\":" + std::string(100, '['));
  expect_error(ErrorKind::bad_file, {"nests deeper"}, [&] { open(); });
  put_index("{\"weight_map\"");
  expect_error(ErrorKind::bad_file, {"not valid JSON"}, [&] { open(); });
}

}  // namespace
}  // namespace quarrel
