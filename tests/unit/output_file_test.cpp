// What a user's path may be, and what becomes of it when a command writes there.
#include "base/output_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <thread>

#include "base/error.h"
#include "support/temp_dir.h"
#include "unit/gguf_support.h"

namespace quarrel {
namespace {

namespace fs = std::filesystem;
using test::read_file;
using test::thrown_by;
using test::write_file;

class Output : public ::testing::Test {
 protected:
  static void write_all(const fs::path& path, std::string_view text = "new") {
    OutputFile file(path);
    file.write(std::as_bytes(std::span(text)));
    file.commit();
  }
  std::size_t entries() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder_.path()), fs::directory_iterator()));
  }

  test::TempDir folder_;
  fs::path path_ = folder_ / "out";
};

TEST_F(Output, AppearsWhole) {
  write_file(path_, "old");
  {
    OutputFile file(path_);
    file.write(std::as_bytes(std::span(std::string_view("new"))));
    EXPECT_EQ(read_file(path_), "old");
    file.commit();
  }
  EXPECT_EQ(read_file(path_), "new");
  {
    OutputFile file(path_);
    file.write(std::as_bytes(std::span(std::string_view("newer"))));
  }
  EXPECT_EQ(read_file(path_), "new") << "what was not committed is dropped";
  EXPECT_EQ(entries(), 1U);
}

TEST_F(Output, APrivateFileStaysPrivate) {
  write_file(path_, "old");
  fs::permissions(path_, fs::perms::owner_read | fs::perms::owner_write);
  write_all(path_);
  EXPECT_EQ(fs::status(path_).permissions(), fs::perms::owner_read | fs::perms::owner_write);
}

TEST_F(Output, ALinkStaysAndItsTargetIsReplacedInItsOwnFolder) {
  write_file(folder_ / "deep/real", "old");
  fs::create_symlink("deep/middle", path_);
  fs::create_symlink("real", folder_ / "deep/middle");
  struct stat before{};
  ASSERT_EQ(::stat((folder_ / "deep/real").c_str(), &before), 0);
  write_all(path_);
  EXPECT_TRUE(fs::is_symlink(path_));
  EXPECT_TRUE(fs::is_symlink(folder_ / "deep/middle"));
  EXPECT_EQ(read_file(folder_ / "deep/real"), "new");
  struct stat after{};
  ASSERT_EQ(::stat((folder_ / "deep/real").c_str(), &after), 0);
  EXPECT_NE(before.st_ino, after.st_ino) << "renamed over, not written into";
}

TEST_F(Output, ALinkToNothingMakesItsTarget) {
  fs::create_symlink("later", path_);
  write_all(path_);
  EXPECT_TRUE(fs::is_symlink(path_));
  EXPECT_EQ(read_file(folder_ / "later"), "new");
}

TEST_F(Output, LinksInACircleAreRefused) {
  fs::create_symlink("other", path_);
  fs::create_symlink("out", folder_ / "other");
  const auto thrown = thrown_by([&] { write_all(path_); });
  ASSERT_TRUE(thrown.happened);
  EXPECT_EQ(thrown.kind, ErrorKind::io);
  EXPECT_TRUE(fs::is_symlink(path_));
  EXPECT_EQ(entries(), 2U);
}

TEST_F(Output, AFifoIsWrittenTo) {
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  std::string got;
  std::jthread reader([&] { got = read_file(path_); });
  write_all(path_);
  reader.join();
  EXPECT_EQ(got, "new");
  EXPECT_TRUE(fs::is_fifo(path_));
}

// Through a link, so that a mistake replaces the link and not the machine's device.
TEST_F(Output, ADeviceStaysADeviceAndItsErrorNamesTheUsersPath) {
  fs::create_symlink("/dev/full", path_);
  const auto thrown = thrown_by([&] { write_all(path_); });
  ASSERT_TRUE(thrown.happened);
  EXPECT_EQ(thrown.kind, ErrorKind::io);
  EXPECT_NE(thrown.message.find("'" + path_.string() + "'"), std::string::npos) << thrown.message;
  EXPECT_EQ(thrown.message.find("partial"), std::string::npos) << thrown.message;
  EXPECT_TRUE(fs::is_symlink(path_));
  EXPECT_TRUE(fs::is_character_file("/dev/full"));
  EXPECT_EQ(entries(), 1U);
}

TEST_F(Output, ADeviceNodeOfItsOwnStaysToo) {
  if (::mknod(path_.c_str(), S_IFCHR | 0600, ::makedev(1, 3)) != 0) GTEST_SKIP() << "no device may be made here";
  const int probe = ::open(path_.c_str(), O_WRONLY | O_CLOEXEC);
  if (probe < 0) GTEST_SKIP() << "no device may be opened here";
  ::close(probe);
  write_all(path_);
  EXPECT_TRUE(fs::is_character_file(path_));
  EXPECT_EQ(entries(), 1U);
}

// `>> file` and `-o /dev/stdout` together append; the file is neither replaced nor cut.
TEST_F(Output, AnOpenDescriptorKeepsItsPlace) {
  write_file(path_, "old ");
  const int descriptor = ::open(path_.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  ASSERT_GE(descriptor, 0);
  fs::create_symlink("/proc/self/fd/" + std::to_string(descriptor), folder_ / "link");
  write_all("/dev/fd/" + std::to_string(descriptor));
  write_all(folder_ / "link", " and newer");
  EXPECT_EQ(::write(descriptor, "!", 1), 1) << "it is still open";
  ::close(descriptor);
  EXPECT_EQ(read_file(path_), "old new and newer!");
}

TEST_F(Output, RefusalsNameTheUsersPath) {
  for (const auto& [path, kind] :
       {std::pair(folder_ / "absent/out", ErrorKind::io), std::pair(fs::path("/proc/self/fd/9999"), ErrorKind::io),
        std::pair(folder_.path(), ErrorKind::usage), std::pair(folder_ / "out/", ErrorKind::usage)}) {
    const auto thrown = thrown_by([&] { write_all(path); });
    ASSERT_TRUE(thrown.happened) << path;
    EXPECT_EQ(thrown.kind, kind);
    EXPECT_NE(thrown.message.find("'" + path.string() + "'"), std::string::npos) << thrown.message;
  }
  EXPECT_EQ(entries(), 0U);
}

}  // namespace
}  // namespace quarrel
