// The fields of a body: kinds, bounds, unknown names, neutral values, and text as JSON.
#include "server/fields.h"

#include <gtest/gtest.h>

#include <random>

#include "server/base64.h"

namespace quarrel {
namespace {

struct Target {
  Json seen = Json::object();
};
template <const char* name>
void see(const Json& value, Target& target) {
  target.seen[name] = value;
}
constexpr char kCount[] = "count";
constexpr char kShare[] = "share";

std::vector<Field<Target>> fields() {
  return {{.name = "flag", .kind = FieldKind::boolean},
          {.name = "count", .kind = FieldKind::integer, .least = -1, .most = 10, .read = see<kCount>},
          {.name = "share", .kind = FieldKind::number, .least = 0, .most = 1, .read = see<kShare>},
          {.name = "name", .kind = FieldKind::text},
          {.name = "user", .kind = FieldKind::no_effect},
          {.name = "tools", .kind = FieldKind::refused, .help = "later"}};
}

// The field that a body is refused for; empty: it is taken.
std::string refused(const std::string& body, std::string* code = nullptr) {
  Target target;
  try {
    read_fields<Target>(parse_body(body), fields(), target);
  } catch (const ApiError& error) {
    EXPECT_EQ(error.status, 400u);
    if (code != nullptr) *code = error.code;
    return error.param.empty() ? error.code : error.param;
  }
  return {};
}

TEST(Fields, HaveKinds) {
  for (const char* body :
       {R"({})", R"({"flag":true})", R"({"count":-1})", R"({"count":10})", R"({"count":5.0})", R"({"share":0})",
        R"({"share":1})", R"({"share":0.5})", R"({"name":""})", R"({"user":{"a":[1]}})", R"({"count":null})"}) {
    EXPECT_EQ(refused(body), "") << body;
  }
  for (const char* value : {"\"true\"", "1", "0", "[]", "{}"}) {
    EXPECT_EQ(refused(fmt::format(R"({{"flag":{}}})", value)), "flag") << value;
  }
  for (const char* value : {"-2", "11", "0.5", "true", "\"5\"", "[]", "{}", "2147483648", "9223372036854775808",
                            "1e308", "-1e308", "\"NaN\""}) {
    EXPECT_EQ(refused(fmt::format(R"({{"count":{}}})", value)), "count") << value;
  }
  for (const char* value : {"-0.001", "1.001", "true", "\"0.5\"", "[0.5]", "1e308"}) {
    EXPECT_EQ(refused(fmt::format(R"({{"share":{}}})", value)), "share") << value;
  }
  for (const char* value : {"1", "true", "[]", "{}"}) {
    EXPECT_EQ(refused(fmt::format(R"({{"name":{}}})", value)), "name") << value;
  }
}

// 2^53 + 1 is no double: rounded down it would pass for 2^53.
TEST(Fields, BoundsOfLargeNumbersAreExact) {
  const auto taken = [](const char* number) {
    try {
      check_field("seed", FieldKind::integer, -9007199254740992.0, 9007199254740992.0, "", Json::parse(number));
      return true;
    } catch (const ApiError&) {
      return false;
    }
  };
  EXPECT_TRUE(taken("9007199254740992"));
  EXPECT_FALSE(taken("9007199254740993"));
  EXPECT_TRUE(taken("-9007199254740992"));
  EXPECT_FALSE(taken("-9007199254740993"));
  EXPECT_FALSE(taken("18446744073709551615"));
}

TEST(Fields, ThatAreNotOfferedTakeNeutralValues) {
  for (const char* value : {"null", "false", "[]", "{}", "\"\"", "\"text\""}) {
    EXPECT_EQ(refused(fmt::format(R"({{"tools":{}}})", value)), "") << value;
  }
  std::string code;
  for (const char* value : {"true", "[1]", "{\"a\":1}", "\"auto\"", "0", "1"}) {
    EXPECT_EQ(refused(fmt::format(R"({{"tools":{}}})", value), &code), "tools") << value;
    EXPECT_EQ(code, "unsupported_parameter");
  }
}

// Who looks for a member compares it with all, so their number is bounded where nobody looks at them, too; in many
// objects there may be more.
TEST(Fields, AnObjectOfTooManyMembersIsRefused) {
  const auto object_of = [](int members) {
    std::string text = "{";
    for (int i = 0; i < members; ++i) text += fmt::format("{}\"k{}\":0", i == 0 ? "" : ",", i);
    return text + "}";
  };
  EXPECT_NO_THROW(parse_body("{\"metadata\":" + object_of(1100) + "}"));
  EXPECT_THROW(parse_body("{\"metadata\":" + object_of(1101) + "}"), ApiError);
  std::string list = "{\"messages\":[";
  for (int i = 0; i < 5000; ++i) list += fmt::format("{}{{\"role\":0}}", i == 0 ? "" : ",");
  EXPECT_NO_THROW(parse_body(list + "]}"));
}

TEST(Fields, ThatNobodyKnowsAreRefusedByName) {
  std::string code;
  EXPECT_EQ(refused(R"({"coumt":null})", &code), "coumt");
  EXPECT_EQ(code, "unsupported_parameter");
  try {
    Target target;
    read_fields<Target>(parse_body(R"({"coumt":1})"), fields(), target);
    FAIL();
  } catch (const ApiError& error) {
    EXPECT_NE(std::string(error.what()).find("'count'"), std::string::npos) << error.what();
  }
  EXPECT_EQ(refused("{\"\\u001b[31m\":1}").find('\x1b'), std::string::npos);
}

TEST(Body, IsAnObjectOfSaneDepth) {
  for (const std::string& body :
       {std::string(), std::string("{"), std::string("[]"), std::string("1"), std::string("null"), std::string("{} x"),
        std::string("{\"a\":1e400}"), std::string("{\"a\":\"\xff\"}"), std::string("{\"a\":\"\\ud800\"}"),
        std::string("{\"a\":NaN}"), std::string("{a:1}"), std::string(1'000'000, '['),
        "{\"user\":" + std::string(70, '[') + std::string(70, ']') + "}"}) {
    EXPECT_EQ(refused(body), "invalid_json") << body.substr(0, 60);
  }
  EXPECT_EQ(refused("{\"user\":" + std::string(60, '[') + std::string(60, ']') + "}"), "");
}

std::string written(std::string_view text) {
  std::string out = "before ";
  append_json_string(out, text);
  EXPECT_TRUE(out.starts_with("before "));
  return out.substr(7);
}

TEST(JsonText, ReadsBackAsItWas) {
  std::string ascii;
  for (int c = 0; c < 128; ++c) {
    const std::string one(1, static_cast<char>(c));
    EXPECT_EQ(Json::parse(written(one)).get<std::string>(), one) << c;
    ascii += one;
  }
  EXPECT_EQ(Json::parse(written(ascii)).get<std::string>(), ascii);
  EXPECT_EQ(written(""), "\"\"");
  std::mt19937 random(1);
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    for (int i = 0; i < 20; ++i) {
      const auto code = static_cast<std::uint32_t>(random() % 4 == 0 ? random() % 0x110000 : random() % 0x100);
      if (code >= 0xd800 && code < 0xe000) continue;
      if (code < 0x80) {
        text += static_cast<char>(code);
      } else if (code < 0x800) {
        text += {static_cast<char>(0xc0 | code >> 6), static_cast<char>(0x80 | (code & 63))};
      } else if (code < 0x10000) {
        text += {static_cast<char>(0xe0 | code >> 12), static_cast<char>(0x80 | (code >> 6 & 63)),
                 static_cast<char>(0x80 | (code & 63))};
      } else {
        text += {static_cast<char>(0xf0 | code >> 18), static_cast<char>(0x80 | (code >> 12 & 63)),
                 static_cast<char>(0x80 | (code >> 6 & 63)), static_cast<char>(0x80 | (code & 63))};
      }
    }
    ASSERT_EQ(Json::parse(written(text)).get<std::string>(), text);
  }
}

TEST(Base64, IsThatOfTheStandard) {
  const auto coded = [](std::string_view text) { return to_base64(std::as_bytes(std::span(text))); };
  EXPECT_EQ(coded(""), "");
  EXPECT_EQ(coded("f"), "Zg==");
  EXPECT_EQ(coded("fo"), "Zm8=");
  EXPECT_EQ(coded("foo"), "Zm9v");
  EXPECT_EQ(coded("foobar"), "Zm9vYmFy");
  EXPECT_EQ(coded("\xff\xfe\xfb"), "//77");
}

}  // namespace
}  // namespace quarrel
