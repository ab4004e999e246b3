#include "base/aligned_buffer.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "base/error.h"

namespace quarrel {
namespace {

constexpr std::size_t kHuge = AlignedBuffer::kHugePage;
const std::size_t kPage = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
const std::vector<std::size_t> kSizes = {1, 4096, kHuge - 1, kHuge, kHuge + 1, 5 * kHuge + 12'345, 64 * kHuge};

std::size_t whole_pages(std::size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

// The lines of /proc/self/smaps that tell about the mapping with this address: its own, and its flags.
struct Mapping {
  std::uintptr_t begin = 0, end = 0;
  std::string flags = {};
};

Mapping mapping_of(const std::byte* data) {
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  std::ifstream file("/proc/self/smaps");
  Mapping mapping;
  for (std::string line; std::getline(file, line);) {
    std::uintptr_t begin = 0, end = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &begin, &end) == 2 && begin <= address && address < end) {
      mapping = {.begin = begin, .end = end};
    }
    if (mapping.end != 0 && line.starts_with("VmFlags:")) {
      mapping.flags = line;
      return mapping;
    }
  }
  return mapping;
}

std::size_t mapped_bytes() {
  std::ifstream file("/proc/self/statm");
  std::size_t pages = 0;
  file >> pages;
  return pages * kPage;
}

TEST(AlignedBuffer, IsAlignedZeroAndUsableToItsEnd) {
  for (const std::size_t bytes : kSizes) {
    SCOPED_TRACE(bytes);
    AlignedBuffer buffer(bytes, "a test");
    ASSERT_EQ(buffer.size(), bytes);
    const auto address = reinterpret_cast<std::uintptr_t>(buffer.data());
    EXPECT_EQ(address % (bytes < kHuge ? 64 : kHuge), 0u);
    EXPECT_TRUE(std::all_of(buffer.data(), buffer.data() + bytes, [](std::byte b) { return b == std::byte{0}; }));
    std::fill(buffer.data(), buffer.data() + bytes, std::byte{1});
  }
  EXPECT_EQ(AlignedBuffer(0, "nothing").data(), nullptr);
}

// Reserving a place for every sequence must not take memory, and who touches a page first decides where it lies.
TEST(AlignedBuffer, TakesNoPageBeforeItIsTouched) {
  const std::size_t bytes = 16 * kHuge;
  const AlignedBuffer buffer(bytes, "a test");
  std::vector<unsigned char> resident(bytes / kPage);
  ASSERT_EQ(::mincore(buffer.data(), bytes, resident.data()), 0);
  EXPECT_TRUE(std::ranges::all_of(resident, [](unsigned char page) { return (page & 1) == 0; }));
}

TEST(AlignedBuffer, AsksForHugePagesWhereTheyFit) {
  if (!std::ifstream("/sys/kernel/mm/transparent_hugepage/enabled")) GTEST_SKIP() << "this system has no huge pages";
  const AlignedBuffer large(3 * kHuge, "a test");
  EXPECT_NE(mapping_of(large.data()).flags.find(" hg"), std::string::npos);
  const AlignedBuffer small(kHuge / 2, "a test");
  EXPECT_EQ(mapping_of(small.data()).flags.find(" hg"), std::string::npos);
}

// What was mapped to find an aligned place is given back at once, and the rest in the end.
TEST(AlignedBuffer, MapsAndUnmapsExactly) {
  mapped_bytes();  // whatever reading files takes, it takes now
  for (const std::size_t bytes : kSizes) {
    SCOPED_TRACE(bytes);
    const std::size_t before = mapped_bytes();
    for (int round = 0; round < 20; ++round) {
      const AlignedBuffer first(bytes, "a test");
      AlignedBuffer second(bytes, "a test");
      EXPECT_EQ(mapped_bytes(), before + 2 * whole_pages(bytes));
      AlignedBuffer third;
      third = std::move(second);
      EXPECT_EQ(second.data(), nullptr);
    }
    EXPECT_EQ(mapped_bytes(), before);
  }
}

TEST(AlignedBuffer, SaysForWhatThereWasNoMemory) {
  constexpr std::size_t kMost = std::numeric_limits<std::size_t>::max();
  for (const std::size_t bytes : {kMost, kMost - kHuge, kMost - 3 * kHuge, kMost / 2, std::size_t{1} << 55}) {
    try {
      const AlignedBuffer buffer(bytes, "everything");
      ADD_FAILURE() << bytes << " bytes were mapped";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::out_of_memory);
      EXPECT_NE(std::string(error.what()).find("everything"), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace quarrel
