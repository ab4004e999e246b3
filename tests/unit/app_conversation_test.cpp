// Which turns of a conversation are sent when the context is full.

#include <gtest/gtest.h>

#include "app/conversation.h"

namespace quarrel {
namespace {

// Turns of 10 tokens a message, the last one a question without an answer.
Conversation conversation_of(int turns) {
  Conversation result{.system = "Be brief.", .messages = {}};
  for (int i = 0; i < turns; ++i) {
    result.messages.push_back({.role = "user", .content = "question"});
    if (i + 1 < turns) result.messages.push_back({.role = "assistant", .content = "answer"});
  }
  return result;
}

std::optional<std::size_t> sent(const Conversation& conversation, std::size_t first, const ContextLimits& limits) {
  return first_sent(conversation, first, limits, [&](std::size_t from) {
    EXPECT_EQ(conversation.messages.at(from).role, "user");
    return 5 + 10 * (conversation.messages.size() - from);
  });
}

TEST(Conversation, NothingIsDroppedWhileThereIsRoom) {
  EXPECT_EQ(sent(conversation_of(3), 0, {.comfortable = 30, .roomy = 55, .most = 90}), 0u);
  EXPECT_EQ(sent(conversation_of(3), 2, {.comfortable = 30, .roomy = 55, .most = 90}), 2u);
}

TEST(Conversation, WholeTurnsAreDroppedUntilItIsComfortable) {
  EXPECT_EQ(sent(conversation_of(6), 0, {.comfortable = 60, .roomy = 80, .most = 90}), 6u);
  EXPECT_EQ(sent(conversation_of(6), 4, {.comfortable = 60, .roomy = 70, .most = 90}), 6u);
}

TEST(Conversation, WithoutComfortAsFewAsWillDo) {
  EXPECT_EQ(sent(conversation_of(6), 0, {.comfortable = 10, .roomy = 80, .most = 90}), 4u);
  EXPECT_EQ(sent(conversation_of(6), 0, {.comfortable = 10, .roomy = 12, .most = 20}), 10u);
}

TEST(Conversation, TheLastTurnAloneCanBeTooMuch) {
  EXPECT_EQ(sent(conversation_of(6), 0, {.comfortable = 10, .roomy = 12, .most = 14}), std::nullopt);
  EXPECT_EQ(sent(conversation_of(1), 0, {.comfortable = 10, .roomy = 12, .most = 14}), std::nullopt);
}

TEST(Conversation, ATemplateGetsTheSystemPromptAndWhatIsSent) {
  const auto list = conversation_of(2).to_template(2);
  ASSERT_EQ(list.size(), 2u);
  EXPECT_EQ(list[0]["role"], "system");
  EXPECT_EQ(list[1]["content"], "question");
}

}  // namespace
}  // namespace quarrel
