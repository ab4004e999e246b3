// What is written down is known after a crash, and nothing else is.
#include "ingest/journal.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "base/error.h"
#include "support/temp_dir.h"
#include "unit/gguf_support.h"

namespace quarrel::test {
namespace {

using Ids = std::vector<std::uint32_t>;

TextKey key(std::uint64_t number) { return {.high = number * 77, .low = number << 3}; }

class Journals : public testing::Test {
 protected:
  JournalSubject subject() const {
    return {.dataset = "longbow://a/b",
            .model = "f00",
            .model_name = "toy",
            .dimension = 4,
            .settings = "mean",
            .columns = {"year"}};
  }
  // Claims texts [from, to) and sends them as a batch.
  static std::uint64_t send(Journal& journal, std::uint64_t from, std::uint64_t to) {
    Ids ids;
    for (std::uint64_t i = from; i < to; ++i) ids.push_back(journal.claim(key(i)).id);
    return journal.sending(ids);
  }

  TempDir folder_;
  const std::filesystem::path path_ = folder_ / "deep/journal";
};

TEST_F(Journals, IdsAreForEver) {
  {
    Journal journal(path_, subject());
    ASSERT_TRUE(journal.is_new());
    journal.begin({.first_id = 100, .rows = 5});
    journal.acknowledged(send(journal, 0, 3));
    EXPECT_EQ(journal.claim(key(1)).claim, Journal::Claim::repeated);
    send(journal, 3, 5);
    journal.claim(key(9));  // and never sent
  }
  Journal journal(path_, subject());
  EXPECT_FALSE(journal.is_new());
  EXPECT_EQ(journal.before().first_id, 100u);
  EXPECT_EQ(journal.before().rows, 5u);
  EXPECT_EQ(journal.counts().acknowledged, 3u);
  EXPECT_EQ(journal.unsure(), (Ids{103, 104}));
  EXPECT_EQ(journal.sent(), (Ids{100, 101, 102, 103, 104}));
  EXPECT_EQ(journal.claim(key(2)).claim, Journal::Claim::stored);
  EXPECT_EQ(journal.claim(key(4)).claim, Journal::Claim::stored);  // until it was looked for
  EXPECT_EQ(journal.claim(key(20)).id, 105u);
}

TEST_F(Journals, WhatIsMissingIsSentWithItsId) {
  {
    Journal journal(path_, subject());
    journal.begin({});
    journal.acknowledged(send(journal, 0, 3));
    const std::uint64_t unsure = send(journal, 3, 6);
    journal.looked_for(unsure, Ids{4});
    EXPECT_EQ(journal.counts().stored, 2u);
    EXPECT_EQ(journal.counts().missing, 1u);
    journal.looked_for_all(Ids{0, 4});
  }
  Journal journal(path_, subject());
  EXPECT_EQ(journal.counts().stored, 4u);
  EXPECT_EQ(journal.missing(), (Ids{0, 4}));
  EXPECT_TRUE(journal.unsure().empty());
  const Journal::Claimed again = journal.claim(key(4));
  EXPECT_EQ(again.claim, Journal::Claim::send);
  EXPECT_TRUE(again.again);
  EXPECT_EQ(again.id, 4u);
  EXPECT_EQ(journal.claim(key(4)).claim, Journal::Claim::stored);  // once
  journal.sending(Ids{4});
  EXPECT_EQ(journal.unsure(), Ids{4});
}

// After any number of bytes the journal is that of the last entry which is whole, and can be written on.
TEST_F(Journals, TornAtEveryByte) {
  struct Moment {
    std::uintmax_t size;
    std::uint64_t stored, acknowledged, unsure, missing;
  };
  std::vector<Moment> moments;
  {
    Journal journal(path_, subject());
    const auto note = [&] {
      const Journal::Counts counts = journal.counts();
      moments.push_back(
          {std::filesystem::file_size(path_), counts.stored, counts.acknowledged, counts.unsure, counts.missing});
    };
    note();
    journal.begin({});
    note();
    const std::uint64_t first = send(journal, 0, 3);
    note();
    journal.acknowledged(first);
    note();
    const std::uint64_t second = send(journal, 3, 5);
    note();
    journal.looked_for(second, Ids{3});
    note();
    journal.looked_for_all(Ids{3, 1});
    note();
  }
  const std::string whole = read_file(path_);
  ASSERT_EQ(whole.size(), moments.back().size);
  for (std::size_t size = 0; size <= whole.size(); ++size) {
    for (const bool zeros : {false, true}) {
      const auto torn = folder_ / "torn";
      write_file(torn, whole.substr(0, size) + (zeros ? std::string(40, '\0') : std::string()));
      if (zeros && size < moments.front().size) continue;  // such a file has no first line
      auto last = moments.front();
      for (const Moment& moment : moments) {
        if (moment.size <= size) last = moment;
      }
      {
        Journal journal(torn, subject());
        EXPECT_EQ(journal.is_new(), size < moments[2].size) << size;
        const Journal::Counts counts = journal.counts();
        EXPECT_EQ(counts.stored, last.stored) << size;
        EXPECT_EQ(counts.acknowledged, last.acknowledged) << size;
        EXPECT_EQ(counts.unsure, last.unsure) << size;
        EXPECT_EQ(counts.missing, last.missing) << size;
        if (journal.is_new()) journal.begin({});
        send(journal, 50, 52);
      }
      EXPECT_EQ(Journal(torn, subject()).counts().unsure, last.unsure + 2) << size;
    }
  }
}

TEST_F(Journals, AFlippedByteOfTheLastEntryEndsWhatIsBelieved) {
  {
    Journal journal(path_, subject());
    journal.begin({});
    send(journal, 0, 3);
  }
  std::string content = read_file(path_);
  content[content.size() - 12] ^= 1;
  write_file(path_, content);
  EXPECT_EQ(Journal(path_, subject()).counts().unsure, 0u);
}

// What follows it was synced once, and sent: to cut it off would lose every id.
TEST_F(Journals, DamageBeforeTheEndIsRefusedAndLeftAlone) {
  std::uintmax_t before_last = 0;
  std::uintmax_t last = 0;
  {
    Journal journal(path_, subject());
    journal.begin({});
    const std::uint64_t batch = send(journal, 0, 3);
    before_last = std::filesystem::file_size(path_);
    journal.acknowledged(batch);
    last = std::filesystem::file_size(path_);
    send(journal, 3, 5);
  }
  const std::string whole = read_file(path_);
  for (std::size_t at = std::string("quarrel ingest journal 1\n").size(); at < last; ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x40);
    write_file(path_, damaged);
    for (const JournalAccess access : {JournalAccess::write, JournalAccess::read}) {
      expect_error(ErrorKind::bad_file, {"damaged"}, [&] { Journal(path_, subject(), access); });
      EXPECT_EQ(read_file(path_), damaged) << at;
    }
    if (at >= before_last) continue;
    // Also where the end was torn off later.
    for (const std::string& tail : {whole.substr(last, 20), std::string(40, '\0'), std::string("S")}) {
      write_file(path_, damaged.substr(0, last) + tail);
      expect_error(ErrorKind::bad_file, {"damaged"}, [&] { Journal(path_, subject()); });
    }
  }
}

TEST_F(Journals, ReadingChangesNothing) {
  expect_error(ErrorKind::io, {"journal"}, [&] { Journal(path_, subject(), JournalAccess::read); });
  EXPECT_FALSE(std::filesystem::exists(path_));
  Journal writer(path_, subject());
  writer.begin({});
  writer.acknowledged(send(writer, 0, 3));
  const std::string whole = read_file(path_);
  write_file(path_, whole + "torn");
  Journal reader(path_, subject(), JournalAccess::read);  // beside the one that writes
  EXPECT_EQ(reader.counts().acknowledged, 3u);
  EXPECT_EQ(reader.claim(key(1)).claim, Journal::Claim::stored);
  EXPECT_EQ(reader.claim(key(7)).id, 3u);
  EXPECT_EQ(read_file(path_), whole + "torn");
}

TEST_F(Journals, WhatIsKnownIsNotWrittenAgain) {
  Journal journal(path_, subject());
  journal.begin({});
  journal.acknowledged(send(journal, 0, 3));
  journal.looked_for_all(Ids{2, 0});
  const std::uintmax_t size = std::filesystem::file_size(path_);
  journal.looked_for_all(Ids{0, 2});
  EXPECT_EQ(std::filesystem::file_size(path_), size);
  journal.looked_for_all(Ids{0});
  EXPECT_GT(std::filesystem::file_size(path_), size);
  EXPECT_EQ(journal.missing(), Ids{0});
}

TEST_F(Journals, IsRefusedForOtherVectors) {
  {
    Journal journal(path_, subject());
    journal.begin({});
    send(journal, 0, 1);
  }
  const auto refused = [&](const char* word, const auto& change) {
    JournalSubject other = subject();
    change(other);
    expect_error(ErrorKind::usage, {"journal", word}, [&] { Journal(path_, other); });
  };
  refused("longbow://a/c", [](JournalSubject& other) { other.dataset = "longbow://a/c"; });
  refused("another model", [](JournalSubject& other) { other.model = "f01"; });
  refused("dimension", [](JournalSubject& other) { other.dimension = 5; });
  refused("made with", [](JournalSubject& other) { other.settings = "cls"; });
  refused("columns", [](JournalSubject& other) { other.columns.clear(); });
  JournalSubject renamed = subject();
  renamed.model_name = "copy";
  EXPECT_FALSE(Journal(path_, renamed).is_new());
}

// A run that came to nothing, for its columns perhaps, or because it had no texts, says nothing about the next one.
TEST_F(Journals, WithoutRowsItBelongsToNothing) {
  JournalSubject other = subject();
  other.columns = {"a name that is longer than that of the column before", "more"};
  other.dimension = 5;
  {
    Journal(path_, other).begin({.first_id = 100, .rows = 5});
  }
  const std::string begun = read_file(path_);
  {
    Journal reader(path_, subject(), JournalAccess::read);
    EXPECT_TRUE(reader.is_new());
    EXPECT_EQ(reader.claim(key(1)).id, 0u);
  }
  EXPECT_EQ(read_file(path_), begun);
  {
    Journal journal(path_, subject());
    ASSERT_TRUE(journal.is_new());
    EXPECT_EQ(journal.before().first_id, 0u);
    journal.begin({.first_id = 7, .rows = 1});
    send(journal, 0, 3);
  }
  EXPECT_EQ(Journal(path_, subject()).unsure(), (Ids{7, 8, 9}));
  expect_error(ErrorKind::usage, {"journal", "dimension"}, [&] { Journal(path_, other); });
}

TEST_F(Journals, OtherFilesAreLeftAlone) {
  for (const char* content : {"hello", "quarrel ingest journal 2\n", "quarrel ingest journal 10\n"}) {
    write_file(path_, content);
    expect_error(ErrorKind::bad_file, {"journal"}, [&] { Journal(path_, subject()); });
    EXPECT_EQ(read_file(path_), content);
  }
  expect_error(ErrorKind::io, {"journal"}, [&] { Journal(folder_.path(), subject()); });
}

TEST_F(Journals, OneProcessAtATime) {
  const Journal journal(path_, subject());
  expect_error(ErrorKind::busy, {"another process"}, [&] { Journal(path_, subject()); });
}

TEST_F(Journals, ManyTexts) {
  constexpr std::uint64_t kTexts = 20'000;
  {
    Journal journal(path_, subject());
    journal.begin({});
    for (std::uint64_t i = 0; i < kTexts; i += 1000) journal.acknowledged(send(journal, i, i + 1000));
  }
  Journal journal(path_, subject());
  EXPECT_EQ(journal.counts().acknowledged, kTexts);
  for (std::uint64_t i = 0; i < kTexts; ++i) {
    const Journal::Claimed claimed = journal.claim(key(i));
    ASSERT_EQ(claimed.claim, Journal::Claim::stored);
    ASSERT_EQ(claimed.id, i);
  }
}

TEST_F(Journals, IdsRunOut) {
  Journal journal(path_, subject());
  journal.begin({.first_id = 0xFFFF'FFFE, .rows = 1});
  EXPECT_EQ(journal.claim(key(1)).id, 0xFFFF'FFFEu);
  EXPECT_EQ(journal.claim(key(2)).id, 0xFFFF'FFFFu);
  expect_error(ErrorKind::bad_input, {"4294967296"}, [&] { journal.claim(key(3)); });
}

TEST_F(Journals, PathsTellDatasetsApart) {
  const auto one = journal_path("s", "longbow://host:3000/a/b?meta=3001");
  EXPECT_EQ(one.parent_path(), std::filesystem::path("s/longbow"));
  EXPECT_TRUE(one.filename().string().starts_with("host_3000_a_b")) << one;
  EXPECT_NE(one, journal_path("s", "longbow://host:3000/a_b?meta=3001"));
}

}  // namespace
}  // namespace quarrel::test
