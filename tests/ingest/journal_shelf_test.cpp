// A journal that lies in memory between two uses: what others have added is known, nothing is read twice, and nothing
// that was never sent is remembered.
#include "ingest/journal_shelf.h"

#include <gtest/gtest.h>

#include <string>

#include "base/error.h"
#include "ingest/ingest_support.h"
#include "support/temp_dir.h"
#include "unit/gguf_support.h"

namespace quarrel::test {
namespace {

constexpr std::size_t kPlenty = std::size_t{1} << 20;
// A look at whether it is the same file, before and after.
constexpr std::uint64_t kLook = 128;

class Shelf : public testing::Test {
 protected:
  static JournalSubject subject() { return {.dataset = "d", .model = "m", .dimension = 4}; }
  void store(std::uint64_t from, std::uint64_t to) { store_numbered(*shelf_.take(path_, subject()), from, to); }
  // As another process does.
  void store_elsewhere(std::uint64_t from, std::uint64_t to) {
    Journal journal(path_, subject());
    store_numbered(journal, from, to);
  }
  void expect_stored(std::uint64_t count) {
    const JournalShelf::Lease lease = shelf_.take(path_, subject());
    EXPECT_EQ((*lease).counts().stored, count);
    for (std::uint64_t i = 0; i < count; ++i) {
      const Journal::Claimed claimed = (*lease).claim(numbered_key(i));
      EXPECT_EQ(claimed.claim, Journal::Claim::stored) << i;
      EXPECT_EQ(claimed.id, i);
    }
  }

  TempDir folder_;
  const std::filesystem::path path_ = folder_ / "journal";
  JournalShelf shelf_{2, kPlenty};
};

TEST_F(Shelf, AJournalIsNotReadForEachRequest) {
  store(0, 1000);
  const std::uint64_t before = shelf_.bytes_read();
  constexpr std::uint64_t kRequests = 50;
  for (std::uint64_t i = 0; i < kRequests; ++i) store(1000 + i, 1001 + i);
  EXPECT_LE(shelf_.bytes_read() - before, kRequests * kLook);
  expect_stored(1000 + kRequests);
  EXPECT_EQ(Journal(path_, subject()).counts().stored, 1000 + kRequests) << "the file has it all";
}

TEST_F(Shelf, WhatAnotherProcessAddsIsReadAlone) {
  store(0, 1000);
  const std::uint64_t before = shelf_.bytes_read();
  const std::uintmax_t size = std::filesystem::file_size(path_);
  store_elsewhere(1000, 1005);
  const std::uintmax_t added = std::filesystem::file_size(path_) - size;
  expect_stored(1005);
  EXPECT_LE(shelf_.bytes_read() - before, added + kLook);
  store(1005, 1007);
  expect_stored(1007);
}

TEST_F(Shelf, WhileItLiesThereOthersMayWriteIt) {
  store(0, 3);
  {
    const Journal other(path_, subject());
    expect_error(ErrorKind::busy, {"another process"}, [&] { shelf_.take(path_, subject()); });
  }
  {
    const JournalShelf::Lease lease = shelf_.take(path_, subject());
    expect_error(ErrorKind::busy, {"another process"}, [&] { Journal(path_, subject()); });
    expect_error(ErrorKind::busy, {"another process"}, [&] { shelf_.take(path_, subject()); });
  }
  expect_stored(3);
}

TEST_F(Shelf, AnotherFileOfThatNameIsReadFromItsBeginning) {
  store(0, 20);
  std::filesystem::remove(path_);
  store(0, 3);
  expect_stored(3);
  // An older copy was brought back into the same file, which has grown to more than it had since.
  const std::string few = read_file(path_);
  store(3, 10);
  write_file(path_, few);
  store_elsewhere(50, 100);
  const JournalShelf::Lease lease = shelf_.take(path_, subject());
  EXPECT_EQ((*lease).counts().stored, 53u);
  EXPECT_EQ((*lease).claim(numbered_key(3)).claim, Journal::Claim::send);
}

TEST_F(Shelf, ATornEndIsCutOff) {
  store(0, 3);
  write_file(path_, read_file(path_) + "torn");
  store(3, 5);
  expect_stored(5);
  EXPECT_EQ(Journal(path_, subject()).counts().stored, 5u);
}

TEST_F(Shelf, DamageToWhatWasAddedIsRefused) {
  store(0, 3);
  const std::size_t size = std::filesystem::file_size(path_);
  store_elsewhere(3, 6);
  std::string content = read_file(path_);
  content[size + 20] ^= 1;
  write_file(path_, content);
  expect_error(ErrorKind::bad_file, {"damaged"}, [&] { shelf_.take(path_, subject()); });
  EXPECT_EQ(read_file(path_), content);
}

// A request that failed: what it sent is unsure, what it only claimed is as if it had never come.
TEST_F(Shelf, ClaimsThatWereNotSentAreForgotten) {
  store(0, 4);
  {
    const JournalShelf::Lease lease = shelf_.take(path_, subject());
    Journal& journal = *lease;
    journal.looked_for_all(std::vector<std::uint32_t>{1, 2});
    EXPECT_TRUE(journal.claim(numbered_key(1)).again);
    journal.claim(numbered_key(100));
    const std::uint32_t sent = journal.claim(numbered_key(101)).id;
    journal.claim(numbered_key(102));
    EXPECT_EQ(sent, 5u);
    journal.sending(std::vector<std::uint32_t>{sent});
  }
  EXPECT_EQ(shelf_.size(), 1u) << "it need not be read anew";
  const JournalShelf::Lease lease = shelf_.take(path_, subject());
  Journal& journal = *lease;
  EXPECT_EQ(journal.missing(), (std::vector<std::uint32_t>{1, 2}));
  EXPECT_EQ(journal.unsure(), std::vector<std::uint32_t>{5});
  EXPECT_EQ(journal.claim(numbered_key(101)).claim, Journal::Claim::stored) << "until it was looked for";
  for (const std::uint64_t text : {1u, 2u, 100u, 102u}) {
    EXPECT_EQ(journal.claim(numbered_key(text)).claim, Journal::Claim::send) << text;
  }
}

TEST_F(Shelf, IsRefusedForOtherVectors) {
  store(0, 3);
  const std::uint64_t before = shelf_.bytes_read();
  JournalSubject other = subject();
  other.model = "another";
  expect_error(ErrorKind::usage, {"another model"}, [&] { shelf_.take(path_, other); });
  expect_stored(3);
  EXPECT_LE(shelf_.bytes_read() - before, 2 * kLook) << "and stays where it is";
  std::filesystem::remove(path_);
  EXPECT_TRUE((*shelf_.take(path_, other)).is_new());
}

TEST_F(Shelf, KeepsAFewAndTheLastWhateverItTakes) {
  const auto fill = [](JournalShelf& shelf, const std::filesystem::path& path) {
    store_numbered(*shelf.take(path, subject()), 0, 10);
  };
  for (const char* name : {"a", "b", "c"}) fill(shelf_, folder_ / name);
  EXPECT_EQ(shelf_.size(), 2u);
  JournalShelf small(8, 1);
  for (const char* name : {"d", "e", "f"}) fill(small, folder_ / name);
  EXPECT_EQ(small.size(), 1u);
  const std::uint64_t before = small.bytes_read();
  store_numbered(*small.take(folder_ / "f", subject()), 10, 11);
  EXPECT_LE(small.bytes_read() - before, kLook);
}

TEST_F(Shelf, OneThatWasNeverBegunIsNotKept) {
  shelf_.take(path_, subject());
  EXPECT_EQ(shelf_.size(), 0u);
  EXPECT_FALSE(std::filesystem::exists(path_)) << "nor is its file";
  (*shelf_.take(path_, subject())).begin({});
  EXPECT_EQ(shelf_.size(), 0u);
  EXPECT_FALSE(std::filesystem::exists(path_)) << "nor that of one with which nothing was sent";
  {
    const JournalShelf::Lease lease = shelf_.take(path_, subject());
    std::filesystem::remove(path_);
    write_file(path_, "another's");
  }
  EXPECT_EQ(read_file(path_), "another's") << "what lies there now is not its own";
}

}  // namespace
}  // namespace quarrel::test
