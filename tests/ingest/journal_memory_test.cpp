// Memory runs out at any moment of a request: what the next one finds on the shelf is what the journal's file says.
#include <gtest/gtest.h>

#include <new>

#include "ingest/ingest_support.h"
#include "ingest/journal_shelf.h"
#include "support/failing_allocation.h"
#include "support/temp_dir.h"

namespace quarrel::test {
namespace {

TEST(JournalMemory, NoIdIsGivenTwice) {
  const JournalSubject subject{.dataset = "d", .model = "m", .dimension = 4};
  bool ran_out = true;
  for (long count = 0; ran_out; ++count) {
    ASSERT_LT(count, 1000) << "a request has not so many allocations";
    const TempDir folder;
    const std::filesystem::path path = folder / "journal";
    JournalShelf shelf(2, std::size_t{1} << 20);
    store_numbered(*shelf.take(path, subject), 0, 3);
    try {
      const JournalShelf::Lease lease = shelf.take(path, subject);
      fail_allocation(count);
      store_numbered(*lease, 3, 6);
    } catch (const std::bad_alloc&) {
    }
    ran_out = fail_no_allocation();
    const Journal file(path, subject, JournalAccess::read);
    const JournalShelf::Lease lease = shelf.take(path, subject);
    EXPECT_EQ((*lease).next_id(), file.next_id()) << count;
    EXPECT_EQ((*lease).sent(), file.sent()) << count;
    EXPECT_EQ((*lease).unsure(), file.unsure()) << count;
    if (!ran_out) {
      EXPECT_EQ((*lease).next_id(), 6u);
    }
  }
}

}  // namespace
}  // namespace quarrel::test
