// Memory taken while a directory is read stays in proportion to the bytes read, whatever the counts in it claim. A
// program of its own, because it replaces the allocation functions.
#include <gtest/gtest.h>
#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "gguf/file.h"
#include "unit/gguf_support.h"

namespace {

std::atomic<std::size_t> live{0};
std::atomic<std::size_t> peak{0};

void* counted(std::size_t size) {
  void* block = std::malloc(size);
  if (block == nullptr) throw std::bad_alloc();
  const std::size_t now = live += malloc_usable_size(block);
  std::size_t before = peak;
  while (now > before && !peak.compare_exchange_weak(before, now)) {
  }
  return block;
}

void release(void* block) {
  if (block != nullptr) live -= malloc_usable_size(block);
  std::free(block);
}

}  // namespace

void* operator new(std::size_t size) { return counted(size); }
void* operator new[](std::size_t size) { return counted(size); }
void operator delete(void* block) noexcept { release(block); }
void operator delete[](void* block) noexcept { release(block); }
void operator delete(void* block, std::size_t) noexcept { release(block); }
void operator delete[](void* block, std::size_t) noexcept { release(block); }

namespace quarrel {
namespace {

using test::Raw;

// The most memory held at a time while the bytes are opened (or refused), beyond what was held before.
std::size_t heap_of(const Raw& raw) {
  const std::size_t before = live;
  peak = before;
  test::thrown_by([&] { GgufFile::view(raw.bytes, "m"); });  // refusing is as good as loading here
  return peak - before;
}

void expect_bounded(const Raw& raw, std::uint64_t metadata_bytes) {
  EXPECT_LE(heap_of(raw), 4 * metadata_bytes + (1 << 20));
}

TEST(GgufHeap, ManyTinyKeys) {
  Raw raw;
  raw.header(0, 65'536);
  for (std::uint32_t i = 0; i < 65'536; ++i) {
    const char key[3] = {static_cast<char>(1 + i % 64), static_cast<char>(1 + i / 64 % 64),
                         static_cast<char>(1 + i / 4096)};
    raw.text({key, sizeof(key)}).u32(0).u8(1);
  }
  EXPECT_EQ(GgufFile::view(raw.bytes, "m").entries().size(), 65'536U);
  expect_bounded(raw, raw.bytes.size());
}

TEST(GgufHeap, ManyTinyStringArrays) {
  Raw raw;
  raw.header(0, 65'536);
  for (std::uint32_t i = 0; i < 65'536; ++i) {
    const char key[3] = {static_cast<char>(1 + i % 64), static_cast<char>(1 + i / 64 % 64),
                         static_cast<char>(1 + i / 4096)};
    raw.text({key, sizeof(key)}).u32(9).u32(8).u64(1).u64(0);
  }
  EXPECT_EQ(GgufFile::view(raw.bytes, "m").entries().size(), 65'536U);
  expect_bounded(raw, raw.bytes.size());
}

TEST(GgufHeap, ManyEmptyStrings) {
  Raw raw;
  raw.header(0, 1).text("k").u32(9).u32(8).u64(1 << 20);
  raw.bytes.resize(raw.bytes.size() + (8 << 20));
  EXPECT_EQ(GgufFile::view(raw.bytes, "m").strings("k").value().size(), 1U << 20);
  expect_bounded(raw, raw.bytes.size());
}

TEST(GgufHeap, ManyTinyTensors) {
  Raw raw;
  raw.header(65'536, 1).text("general.alignment").u32(4).u32(1);
  for (std::uint32_t i = 0; i < 65'536; ++i) {
    const char name[3] = {static_cast<char>(1 + i % 64), static_cast<char>(1 + i / 64 % 64),
                          static_cast<char>(1 + i / 4096)};
    raw.tensor({name, sizeof(name)}, {}, 0, std::uint64_t{4} * i);
  }
  const std::size_t metadata = raw.bytes.size();
  raw.data(std::size_t{4} * 65'536);
  EXPECT_EQ(GgufFile::view(raw.bytes, "m").tensors().size(), 65'536U);
  expect_bounded(raw, metadata);
}

TEST(GgufHeap, CountsThatLie) {
  const std::size_t much = 16 << 20;  // zeros in which a count would have room
  expect_bounded(Raw().header(65'536, 65'536).data(much), 64);
  // The last of the strings is too long; none of them may cost memory before that is known.
  Raw strings = Raw().header(0, 1).text("k").u32(9).u32(8).u64(1 << 20).u64(0).u64(~0ULL);
  strings.bytes.resize(strings.bytes.size() + much);
  expect_bounded(strings, 64);
  Raw numbers = Raw().header(0, 2).text("k").u32(9).u32(10).u64(1 << 20);
  numbers.bytes.resize(numbers.bytes.size() + (8 << 20));
  expect_bounded(numbers, 64);
}

}  // namespace
}  // namespace quarrel
