// Bodies by two readers: what simdjson takes is what nlohmann takes, and the same; what is refused is refused alike,
// whatever its size.
#include "server/json_body.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "server/api_error.h"

namespace quarrel {
namespace {

std::string nested(int levels, const std::string& inside, char open, char close) {
  std::string text(static_cast<std::size_t>(levels), open);
  return "{\"a\":" + text + inside + std::string(static_cast<std::size_t>(levels), close) + "}";
}

std::string object_of(int members, const char* name) {
  std::string text = "{";
  for (int i = 0; i < members; ++i) {
    text += (i == 0 ? "\"" : ",\"") + std::string(name) + (*name == 'k' ? std::to_string(i) : "") +
            "\":" + std::to_string(i);
  }
  return text + "}";
}

// What clients, and those who mean no good, have been seen to send.
std::vector<std::string> bodies() {
  using namespace std::string_literals;
  std::vector<std::string> list = {
      // Taken.
      "{}", " \t\r\n{}\n", R"({"a":1,"b":[true,false,null,"x",-1,0.5,1e3,{}]})", R"({"a":{"b":{"c":[[],[{}]]}}})",
      R"({"":""})", R"({"a":"\u0000\u001f\u00e9\ud83d\ude00\"\\\/\b\f\n\r\t"})", "{\"a\":\"\xc3\xa9\xf0\x9f\x98\x80\"}",
      "{\"\xc3\xa9\":1}", "{\"a\":\"\x7f\"}", R"({"a":[0,-0,0.0,-0.0,1.0,1e0,1E+2,1e-2]})",
      R"({"a":[9007199254740993,9223372036854775807,-9223372036854775808,9223372036854775808,18446744073709551615]})",
      R"({"a":[18446744073709551616,-9223372036854775809,123456789012345678901234567890]})",
      R"({"a":[1e308,-1e308,1e-400,2.2250738585072011e-308,4.9e-324,0.1,0.30000000000000004,123456789.123456789]})",
      // A name twice, also in other spellings: refused.
      R"({"a":1,"b":2,"a":3})", R"({"a":{"x":1},"a":{"y":2}})", R"({"a":1,"\u0061":2})", R"({"a":[1],"a":null})",
      object_of(1100, "k"), object_of(1100, "same"), object_of(1099, "k").replace(0, 1, "{\"k1098\":0,"),
      // Depth and number of members.
      nested(63, "1", '[', ']'), nested(64, "", '[', ']'), nested(64, "1", '[', ']'), nested(65, "", '[', ']'),
      nested(70, "1", '[', ']'), nested(1025, "", '[', ']'), nested(100'000, "", '[', ']'), object_of(1101, "k"),
      object_of(1101, "same"), std::string(1'000'000, '['), std::string(100'000, '{'),
      // No JSON, or not all of it.
      "", " ", "{", "}", "{}}", "{} x", "{}{}", "[]", "1", "\"a\"", "null", "nul", "{a:1}", "{'a':1}", "{\"a\"}",
      "{\"a\":}", "{\"a\":1,}", "{,}", "{\"a\":[1,]}", "{\"a\":[,1]}", "{\"a\" 1}", "{\"a\":1 \"b\":2}", "{\"a\":tru}",
      "{\"a\":TRUE}", "{\"a\":NaN}", "{\"a\":Infinity}", "{\"a\":-}", "{\"a\":01}", "{\"a\":1.}", "{\"a\":.5}",
      "{\"a\":1e}", "{\"a\":+1}", "{\"a\":0x10}", "{\"a\":1e400}", "{\"a\":-1e400}", "{\"a\":1_000}", "{\"a\":1}//",
      "{/**/}", "{\"a\":\"", "{\"a\":\"\\\"}", "{\"a\":\"b", "{1:2}", "{null:1}", "\xef\xbb\xbf{}",
      "{\"a\":\xef\xbb\xbf 1}",
      // Bytes and escapes that are no text.
      "{\"a\":\"\xff\"}", "{\"a\":\"\xc3\"}", "{\"a\":\"\xc0\xaf\"}", "{\"a\":\"\xed\xa0\x80\"}",
      "{\"a\":\"\xf4\x90\x80\x80\"}", "{\"a\":\"\xe2\x82\"}", "{\"\xff\":1}", "\xff{}", "{}\xff", "{\"a\":1\xc2\xa0}",
      "{\"a\":\"\n\"}", "{\"a\":\"\t\"}", "{\"a\":\"\x1f\"}", R"({"a":"\ud800"})", R"({"a":"\udc00"})",
      R"({"a":"\udc00\ud800"})", R"({"a":"\ud800\ud800"})", R"({"a":"\ud800x"})", R"({"a":"\ud800\n"})",
      R"({"a":"\ud83d\u0041"})", R"({"\ud800":1})", R"({"a":"\u12"})", R"({"a":"\u12g4"})", R"({"a":"\x41"})",
      R"({"a":"\'"})", R"({"a":"\a"})", "{\"a\":\"\0\"}"s, "{}\0"s, "{}\0junk"s, "\0{}"s, "{\"a\":1}\0{\"b\":2}"s,
      "{\"a\0b\":1}"s};
  return list;
}

// The JSON, or what is wrong with it.
template <typename Reader>
std::string outcome(const Reader& reader, const std::string& body) {
  try {
    return "taken: " + reader(body).dump();
  } catch (const ApiError& error) {
    return "refused: " + error.code + ": " + error.what();
  }
}

// White space behind it makes a body large and changes nothing else.
std::string enlarged(const std::string& body) { return body + std::string(5000, ' '); }

void compare(const std::string& body) {
  const std::string shown = body.substr(0, 80);
  if (const std::optional<Json> quick = read_by_simdjson(body)) {
    EXPECT_EQ("taken: " + quick->dump(), outcome(read_by_nlohmann, body)) << shown;
  }
  const std::string large = enlarged(body);
  EXPECT_EQ(outcome(parse_body, large), outcome(read_by_nlohmann, large)) << shown;
  EXPECT_EQ(outcome(parse_body, large).substr(0, 8), outcome(parse_body, body).substr(0, 8)) << shown;
}

TEST(JsonBody, BothReadersSayTheSame) {
  for (const std::string& body : bodies()) compare(body);
}

// What is plain goes the quick way, or there would be nothing to compare.
TEST(JsonBody, SimdjsonTakesWhatIsUsual) {
  EXPECT_TRUE(
      read_by_simdjson(R"({"messages":[{"role":"user","content":"\u00e9\n"}],"n":1,"temperature":0.5,"seed":-1})"));
  EXPECT_TRUE(read_by_simdjson(nested(60, "1", '[', ']')));
  EXPECT_TRUE(read_by_simdjson(object_of(1100, "k")));
  EXPECT_FALSE(read_by_simdjson(nested(65, "1", '[', ']')));
  EXPECT_FALSE(read_by_simdjson(object_of(1101, "k")));
  EXPECT_FALSE(read_by_simdjson("[]"));
  EXPECT_FALSE(read_by_simdjson(R"({"a":1,"a":1})"));
}

// Of which value the sender thinks nobody knows.
TEST(JsonBody, ANameThatComesTwiceIsRefused) {
  for (const char* body : {R"({"a":1,"b":2,"a":3})", R"({"x":[{"a":{"b":1}},{"a":1,"\u0061":2}]})"}) {
    for (const std::string& sent : {std::string(body), enlarged(body)}) {
      const std::string said = outcome(parse_body, sent);
      EXPECT_NE(said.find("refused: invalid_json: an object has two members 'a'"), std::string::npos) << said;
    }
  }
  EXPECT_NO_THROW(parse_body(R"({"a":{"a":[{"a":1},{"a":2}]},"b":{"a":1}})"));
}

// `count` times the same in a list.
std::string list_of(int count, const std::string& each) {
  std::string text = "{\"a\":[" + each;
  for (int i = 1; i < count; ++i) text += "," + each;
  return text + "]}";
}

TEST(JsonBody, WideObjectsAreTakenInAnyNumber) {
  const std::string body = list_of(100, object_of(1100, "k"));
  const std::optional<Json> quick = read_by_simdjson(body);
  ASSERT_TRUE(quick);
  EXPECT_EQ(quick->dump(), body);
  EXPECT_EQ(read_by_nlohmann(body).dump(), body);
}

// What is no JSON goes to the second reader. If that looked at the whole list again for each object in it, it would
// take many minutes.
TEST(JsonBody, ALongListOfObjectsIsReadOnce) {
  const std::string body = list_of(1'000'000, "{}");
  const std::string said = outcome(parse_body, body + "x");
  EXPECT_NE(said.find("refused: invalid_json: the body is not JSON: something is wrong at byte"), std::string::npos)
      << said.substr(0, 80);
  EXPECT_EQ(read_by_nlohmann(body)["a"].size(), 1'000'000u);
}

TEST(JsonBody, AByteOfZeroIsNoEnd) {
  using namespace std::string_literals;
  EXPECT_THROW(parse_body("{}\0junk"s), ApiError);
  EXPECT_THROW(parse_body(enlarged("{}\0junk"s)), ApiError);
}

// Bodies that differ from good ones in a few bytes.
TEST(JsonBody, BothReadersSayTheSameOfDamagedBodies) {
  std::vector<std::string> good;
  for (const std::string& body : bodies()) {
    if (body.size() < 400) good.push_back(body);
  }
  std::mt19937 random(7);
  static constexpr char kAlphabet[] = "{}[]\",:\\u019dDeE+-.\x00\x1f\xc3\xa9\xff tfn";
  const std::string alphabet(kAlphabet, sizeof kAlphabet - 1);  // it has a zero byte in it
  for (int round = 0; round < 5000; ++round) {
    std::string body = good[random() % good.size()];
    for (auto changes = 1 + random() % 3; changes > 0 && !body.empty(); --changes) {
      const std::size_t at = random() % body.size();
      switch (random() % 3) {
        case 0: body[at] = alphabet[random() % alphabet.size()]; break;
        case 1: body.insert(at, 1, alphabet[random() % alphabet.size()]); break;
        default: body.erase(at, 1); break;
      }
    }
    compare(body);
    if (HasFailure()) FAIL() << "round " << round;
  }
}

}  // namespace
}  // namespace quarrel
