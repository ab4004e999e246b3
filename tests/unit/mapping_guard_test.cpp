// Mapped files that are cut short while somebody reads them.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/mapped_file.h"
#include "gguf/file.h"
#include "gguf/writer.h"
#include "support/temp_dir.h"
#include "unit/gguf_support.h"

namespace quarrel {
namespace {

namespace fs = std::filesystem;
using test::expect_error;
using test::TempDir;
using test::write_file;

const std::size_t kPage = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));

// How many bytes of the range are `value`; every byte is read.
std::size_t count(std::span<const std::byte> range, char value) {
  return static_cast<std::size_t>(std::ranges::count(range, static_cast<std::byte>(value)));
}

TEST(MappingGuard, AFileThatIsCutReadsAsZerosFromThere) {
  const TempDir folder;
  write_file(folder / "f", std::string(10 * kPage, 'x'));
  const MappedFile file = MappedFile::open(folder / "f");
  EXPECT_FALSE(file.cut_short());
  file.require_whole();
  fs::resize_file(folder / "f", 3 * kPage);
  EXPECT_EQ(count(file.bytes(), 'x'), 3 * kPage);
  EXPECT_EQ(count(file.bytes(), '\0'), 7 * kPage);
  EXPECT_TRUE(file.cut_short());
  expect_error(ErrorKind::bad_file, {"/f", "cut short"}, [&] { file.require_whole(); });
  // Nothing of this is forgotten when the file is as long as before.
  fs::resize_file(folder / "f", 10 * kPage);
  EXPECT_TRUE(file.cut_short());
}

TEST(MappingGuard, ACutThatGivesNoFaultIsSeenToo) {
  const TempDir folder;
  write_file(folder / "f", std::string(2 * kPage, 'x'));
  const MappedFile file = MappedFile::open(folder / "f");
  fs::resize_file(folder / "f", kPage + 1);
  EXPECT_EQ(count(file.bytes(), 'x'), kPage + 1);
  EXPECT_TRUE(file.cut_short());
}

TEST(MappingGuard, OnlyTheFileThatWasCutIsSaidToBe) {
  const TempDir folder;
  write_file(folder / "a", std::string(4 * kPage, 'a'));
  write_file(folder / "b", std::string(4 * kPage, 'b'));
  MappedFile first = MappedFile::open(folder / "a");
  const MappedFile b = MappedFile::open(folder / "b");
  const MappedFile a = std::move(first);  // the guard goes along
  fs::resize_file(folder / "a", 0);
  EXPECT_EQ(count(a.bytes(), '\0'), 4 * kPage);
  EXPECT_EQ(count(b.bytes(), 'b'), 4 * kPage);
  EXPECT_TRUE(a.cut_short());
  EXPECT_FALSE(b.cut_short());
}

TEST(MappingGuard, APlaceIsUsedAgainWithoutItsPast) {
  const TempDir folder;
  for (int i = 0; i < 3; ++i) {
    write_file(folder / "f", std::string(2 * kPage, 'x'));
    const MappedFile file = MappedFile::open(folder / "f");
    EXPECT_FALSE(file.cut_short());
    fs::resize_file(folder / "f", 0);
    EXPECT_EQ(count(file.bytes(), '\0'), 2 * kPage);
    EXPECT_TRUE(file.cut_short());
  }
}

TEST(MappingGuard, ManyThreadsMayMeetTheEnd) {
  constexpr std::size_t kThreads = 8;
  constexpr std::size_t kPages = 512;
  const TempDir folder;
  write_file(folder / "f", std::string(kPages * kPage, 'x'));
  const MappedFile file = MappedFile::open(folder / "f");
  fs::resize_file(folder / "f", kPage);
  std::atomic<bool> begin = false;
  std::atomic<std::size_t> zeros = 0;
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      while (!begin.load()) std::this_thread::yield();
      // From the end to the beginning, so that each page is a fault of its own; and others open and close files.
      for (std::size_t page = kPages; page-- > 0;) {
        zeros += count(file.bytes().subspan(page * kPage, kPage), '\0');
        if (page % 64 != t) continue;
        EXPECT_FALSE(MappedFile::open("/proc/self/exe").cut_short());
      }
    });
  }
  begin = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(zeros, kThreads * (kPages - 1) * kPage);
  EXPECT_TRUE(file.cut_short());
}

TEST(MappingGuard, AModelKnowsOfItsParts) {
  const TempDir folder;
  GgufWriter writer;
  writer.put_string("general.architecture", "toy");
  writer.add_tensor("w", {1000, 20}, std::vector<float>(20'000, 0.5F));
  writer.write(folder / "m.gguf");
  const GgufFile file = GgufFile::open(folder / "m.gguf");
  EXPECT_FALSE(file.cut_short());
  fs::resize_file(folder / "m.gguf", kPage);
  EXPECT_TRUE(file.cut_short());
  expect_error(ErrorKind::bad_file, {"m.gguf", "cut short"}, [&] { file.require_whole(); });
}

// Maps a file without a guard, cuts it, and reads beyond its end.
char read_unguarded(const fs::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const auto* data =
      static_cast<const volatile char*>(::mmap(nullptr, 2 * kPage, PROT_READ, MAP_PRIVATE, descriptor, 0));
  fs::resize_file(path, 0);
  return data[kPage];
}

extern "C" void leave_with_3(int) { ::_exit(3); }
extern "C" void leave_with_4(int, siginfo_t* info, void*) { ::_exit(info->si_addr != nullptr ? 4 : 5); }

// Each runs in a process of its own, where nothing was mapped before: the handler must be installed after theirs.
class ForeignFault : public ::testing::Test {
 protected:
  ForeignFault() {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    write_file(folder_ / "guarded", std::string(2 * kPage, 'x'));
    write_file(folder_ / "foreign", std::string(2 * kPage, 'x'));
  }
  void map_and_cut() const {
    const MappedFile file = MappedFile::open(folder_ / "guarded");
    fs::resize_file(folder_ / "guarded", 0);
    if (count(file.bytes(), '\0') != 2 * kPage) ::_exit(1);
  }

  const TempDir folder_;
};

TEST_F(ForeignFault, GoesToASimpleHandler) {
  const auto fault = [&] {
    ::signal(SIGBUS, leave_with_3);
    map_and_cut();
    ::_exit(read_unguarded(folder_ / "foreign"));
  };
  EXPECT_EXIT(fault(), ::testing::ExitedWithCode(3), "");
}

TEST_F(ForeignFault, GoesToAHandlerThatWantsToKnowWhere) {
  const auto fault = [&] {
    struct sigaction action = {};
    action.sa_sigaction = leave_with_4;
    action.sa_flags = SA_SIGINFO;
    ::sigaction(SIGBUS, &action, nullptr);
    map_and_cut();
    ::_exit(read_unguarded(folder_ / "foreign"));
  };
  EXPECT_EXIT(fault(), ::testing::ExitedWithCode(4), "");
}

TEST_F(ForeignFault, EndsTheProcessWithoutAHandler) {
  const auto fault = [&] {
    ::signal(SIGBUS, SIG_DFL);
    map_and_cut();
    ::_exit(read_unguarded(folder_ / "foreign"));
  };
  EXPECT_EXIT(fault(), ::testing::KilledBySignal(SIGBUS), "");
}

TEST_F(ForeignFault, ASignalThatSomebodySentIsSentOn) {
  const auto send = [&] {
    ::signal(SIGBUS, SIG_DFL);
    map_and_cut();
    ::raise(SIGBUS);
    ::_exit(0);
  };
  EXPECT_EXIT(send(), ::testing::KilledBySignal(SIGBUS), "");
}

}  // namespace
}  // namespace quarrel
