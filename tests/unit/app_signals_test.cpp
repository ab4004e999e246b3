// What ends a program, and what does not.
#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>

#include "app/terminal.h"

namespace quarrel {
namespace {

// A supervisor that asks twice, the second time while the last destructors run.
TEST(Interrupts, AProgramThatIsEndingDoesNotEndByTheNextSignal) {
  const auto end = [] {
    {
      const Interrupts interrupts;
      ::raise(SIGTERM);
    }
    ::raise(SIGTERM);
    std::_Exit(0);
  };
  EXPECT_EXIT(end(), testing::ExitedWithCode(0), "");
}

TEST(Interrupts, WhoWasNotAskedToEndIsAsBefore) {
  const auto end = [] {
    {
      const Interrupts interrupts;
    }
    ::raise(SIGTERM);
    std::_Exit(0);
  };
  EXPECT_EXIT(end(), testing::KilledBySignal(SIGTERM), "");
}

}  // namespace
}  // namespace quarrel
