// From a name to a device, on machines with a GPU and without.
#include "backend/create.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace quarrel::test {
namespace {

TEST(MakeDevice, AutoTakesTheCpuAndSaysWhyWhereThereIsNoGpu) {
  std::string told;
  const auto device =
      make_device({.backend = "auto", .threads = 1, .on_fallback = [&](const std::string& reason) { told = reason; }});
  if (device->name() == "cuda") {
    EXPECT_TRUE(told.empty()) << told;
    ASSERT_NE(device->fallback(), nullptr);
    EXPECT_EQ(device->fallback()->name(), "cpu");
    EXPECT_EQ(device->fallback(), device->fallback());
    return;
  }
  EXPECT_EQ(device->name(), "cpu");
  EXPECT_EQ(told.find("the model runs on the cpu: "), 0u) << told;
  EXPECT_EQ(device->fallback(), nullptr);
  try {
    make_device({.backend = "cuda"});
    FAIL() << "a GPU that auto did not find";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::unsupported);
    EXPECT_NE(told.find(error.what()), std::string::npos);
  }
}

TEST(MakeDevice, RefusesWhatIsNoBackend) {
  try {
    make_device({.backend = "gpu"});
    FAIL() << "there is no such backend";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
  }
}

}  // namespace
}  // namespace quarrel::test
