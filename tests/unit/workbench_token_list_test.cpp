// Token ids as users write them on the command line and in files.
#include <gtest/gtest.h>

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "app/token_list.h"
#include "base/error.h"
#include "support/golden.h"
#include "support/temp_dir.h"

namespace quarrel {
namespace {

using Ids = std::vector<TokenId>;

std::string message_of(const std::function<void()>& action, ErrorKind kind) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

TEST(TokenList, AcceptsCommasSpacesAndJsonArrays) {
  EXPECT_EQ(parse_token_list("1,2,3"), (Ids{1, 2, 3}));
  EXPECT_EQ(parse_token_list(" 1 2\n3\t4 "), (Ids{1, 2, 3, 4}));
  EXPECT_EQ(parse_token_list("[1, 2, 3]\n"), (Ids{1, 2, 3}));
  EXPECT_EQ(parse_token_list("7 , 8"), (Ids{7, 8}));
  EXPECT_EQ(parse_token_list("2147483647"), (Ids{2147483647}));
}

TEST(TokenList, RefusesWhatIsNoList) {
  for (const char* text :
       {"", "  ", "[]", "1,,2", ",1", "1,", "one", "1.5", "0x10", "1;2", "[1", "1]", "[", "1-2", "+1"}) {
    EXPECT_THROW(parse_token_list(text), Error) << '"' << text << '"';
  }
}

TEST(TokenList, NamesTheWordThatIsNoId) {
  const std::string message = message_of([] { parse_token_list("1,banana,3"); }, ErrorKind::bad_input);
  EXPECT_NE(message.find("banana"), std::string::npos) << message;
}

TEST(TokenList, RefusesIdsThatDoNotFit) {
  const std::string message = message_of([] { parse_token_list("1,99999999999"); }, ErrorKind::bad_input);
  EXPECT_NE(message.find("99999999999"), std::string::npos) << message;
}

TEST(TokenList, ReadsFiles) {
  const test::TempDir folder;
  const std::string text = "[5,\n 6]";
  test::save_bytes(folder / "tokens.json", std::as_bytes(std::span(text)));
  EXPECT_EQ(read_token_list("@" + (folder / "tokens.json").string()), (Ids{5, 6}));
  EXPECT_EQ(read_token_list("5 6"), (Ids{5, 6}));
  message_of([&] { read_token_list("@" + (folder / "absent").string()); }, ErrorKind::not_found);
  message_of([&] { read_token_list("5,x"); }, ErrorKind::usage);
}

TEST(TokenList, NamesTheIdOutsideTheVocabulary) {
  const Ids tokens{0, 319, 320};
  EXPECT_NO_THROW(check_token_ids(std::span(tokens).first(2), 320));
  const std::string message = message_of([&] { check_token_ids(tokens, 320); }, ErrorKind::bad_input);
  EXPECT_NE(message.find("id 320 (number 3"), std::string::npos) << message;
  const Ids negative{-1};
  message_of([&] { check_token_ids(negative, 320); }, ErrorKind::bad_input);
}

TEST(TokenList, SaysBothNumbersWhenTheContextIsTooShort) {
  EXPECT_NO_THROW(check_fits_context(512, 512));
  const std::string message = message_of([] { check_fits_context(513, 512); }, ErrorKind::bad_input);
  EXPECT_NE(message.find("513"), std::string::npos) << message;
  EXPECT_NE(message.find("512"), std::string::npos) << message;
}

}  // namespace
}  // namespace quarrel
