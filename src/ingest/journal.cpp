#include "ingest/journal.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/printable.h"
#include "base/sha256.h"

namespace quarrel {
namespace {

// Kinds of entries.
constexpr std::uint8_t kSubject = 'J';       // JSON: what the journal is of
constexpr std::uint8_t kSending = 'S';       // ids and keys of a batch; its number is how many of these came before
constexpr std::uint8_t kAcknowledged = 'A';  // the number of a batch
constexpr std::uint8_t kLookedFor = 'F';     // the number of a batch, and the ids that were not there
constexpr std::uint8_t kLookedForAll = 'E';  // the ids that were not there

constexpr std::size_t kSmallestTable = 1024;
constexpr std::uint64_t kIds = std::uint64_t{1} << 32;

void require_same(const std::filesystem::path& path, const char* what, const std::string& theirs,
                  const std::string& ours) {
  if (theirs == ours) return;
  fail(ErrorKind::usage, "the journal {} is of {} '{}', not '{}': choose another dataset, or another journal",
       printable(path.string()), what, printable(theirs), printable(ours));
}

void require_same(const std::filesystem::path& path, const JournalSubject& theirs, const JournalSubject& ours) {
  const auto list = [](const std::vector<std::string>& names) { return fmt::format("{}", fmt::join(names, ",")); };
  require_same(path, "the dataset", theirs.dataset, ours.dataset);
  if (theirs.model != ours.model) {
    fail(ErrorKind::usage, "the journal {} is of another model ('{}', not this '{}'): vectors of two models do not mix",
         printable(path.string()), printable(theirs.model_name), printable(ours.model_name));
  }
  require_same(path, "vectors of the dimension", fmt::format("{}", theirs.dimension),
               fmt::format("{}", ours.dimension));
  require_same(path, "vectors made with", theirs.settings, ours.settings);
  require_same(path, "the columns", list(theirs.columns), list(ours.columns));
}

std::vector<std::uint32_t> take_ids(std::string_view& payload) {
  std::vector<std::uint32_t> ids(payload.size() / sizeof(std::uint32_t));
  for (std::uint32_t& id : ids) id = take_u32(payload);
  return ids;
}

}  // namespace

// A change of the file and of what is known of it. One that ends early, for a full disk or for lack of memory, may have
// reached the one and not the other: the journal is torn then.
class Journal::Change {
 public:
  explicit Change(Journal& journal) noexcept : journal_(journal), was_torn_(std::exchange(journal.torn_, true)) {}
  Change(const Change&) = delete;
  Change& operator=(const Change&) = delete;
  void done() noexcept { journal_.torn_ = was_torn_; }

 private:
  Journal& journal_;
  const bool was_torn_;
};

Journal::Journal(const std::filesystem::path& path, const JournalSubject& subject, JournalAccess access)
    : subject_(subject),
      table_(kSmallestTable),
      file_(path, access, [this, &path](std::uint8_t kind, std::string_view payload) {
        try {
          read_entry(kind, payload);
        } catch (const nlohmann::json::exception&) {
          fail(ErrorKind::bad_file, "the journal {} is damaged", printable(path.string()));
        }
      }) {
  if (next_batch_ > 0) {
    require_same(path, subject_, subject);
  } else {  // begun for a run that came to nothing: what that one wanted is no reason to refuse another
    subject_ = subject;
    before_ = {};
    is_new_ = true;
  }
  first_of_run_ = rows_.size();
}

// --- between runs

bool Journal::release() {
  const std::scoped_lock lock(mutex_);
  const bool says_nothing = next_batch_ == 0;
  if (says_nothing) file_.discard();
  if (says_nothing || torn_) return false;
  forget_claims();
  file_.release();
  return true;
}

bool Journal::resume() {
  const std::scoped_lock lock(mutex_);
  const bool is_same = file_.resume([this](std::uint8_t kind, std::string_view payload) { read_entry(kind, payload); });
  first_of_run_ = rows_.size();
  return is_same;
}

void Journal::require(const JournalSubject& subject) const {
  const std::scoped_lock lock(mutex_);
  require_same(file_.path(), subject_, subject);
}

// As if it were read anew: those that were known to be missing still are, the others never were.
void Journal::forget_claims() {
  if (counts_[static_cast<std::size_t>(State::claimed)] == 0) return;
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    if (rows_[i].state != State::claimed) continue;
    set(before_.first_id + static_cast<std::uint32_t>(i), rows_[i].open ? State::missing : State::unused);
  }
  while (!rows_.empty() && rows_.back().state == State::unused) {
    rows_.pop_back();
    --counts_[static_cast<std::size_t>(State::unused)];
  }
  std::ranges::fill(table_, 0u);
  in_table_ = 0;
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    if (rows_[i].state == State::unused) continue;
    put_in_table(static_cast<std::uint32_t>(i + 1));
    ++in_table_;
  }
}

std::uint64_t Journal::bytes_read() const {
  const std::scoped_lock lock(mutex_);
  return file_.bytes_read();
}

std::size_t Journal::memory() const {
  const std::scoped_lock lock(mutex_);
  return rows_.capacity() * sizeof(Row) + (table_.capacity() + open_.capacity()) * sizeof(std::uint32_t);
}

bool Journal::is_new() const {
  const std::scoped_lock lock(mutex_);
  return is_new_;
}

void Journal::begin(const RowsBefore& before) {
  const std::scoped_lock lock(mutex_);
  if (!is_new_) fail(ErrorKind::internal, "a journal is begun once");
  const nlohmann::ordered_json object{{"dataset", subject_.dataset},       {"model", subject_.model},
                                      {"model_name", subject_.model_name}, {"dimension", subject_.dimension},
                                      {"settings", subject_.settings},     {"columns", subject_.columns},
                                      {"first_id", before.first_id},       {"rows", before.rows}};
  Change change(*this);
  file_.clear();
  write(kSubject, object.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace), true);
  before_ = before;
  is_new_ = false;
  change.done();
}

RowsBefore Journal::before() const {
  const std::scoped_lock lock(mutex_);
  return before_;
}

// --- reading

void Journal::read_entry(std::uint8_t kind, std::string_view payload) {
  if (is_new_ != (kind == kSubject)) fail(ErrorKind::bad_file, "the journal does not begin with what it is of");
  switch (kind) {
    case kSubject: read_subject(payload); break;
    case kSending: read_sending(payload); break;
    case kAcknowledged:
      for (const std::uint32_t id : settle(take_u64(payload))) set(id, State::acknowledged);
      break;
    case kLookedFor: read_looked_for(payload); break;
    case kLookedForAll: settle_all(take_ids(payload)); break;
    default: fail(ErrorKind::bad_file, "the journal has an entry of an unknown kind: a later version wrote it");
  }
}

void Journal::read_subject(std::string_view payload) {
  const auto object = nlohmann::json::parse(payload);
  const auto text = [&](const char* name) { return object.at(name).get<std::string>(); };
  subject_ = {.dataset = text("dataset"),
              .model = text("model"),
              .model_name = text("model_name"),
              .dimension = object.at("dimension").get<std::int32_t>(),
              .settings = text("settings"),
              .columns = object.at("columns").get<std::vector<std::string>>()};
  before_ = {.first_id = object.at("first_id").get<std::uint32_t>(), .rows = object.at("rows").get<std::uint64_t>()};
  is_new_ = false;
}

void Journal::read_sending(std::string_view payload) {
  std::vector<std::uint32_t> ids;
  while (!payload.empty()) {
    const std::uint32_t id = take_u32(payload);
    TextKey key;
    key.high = take_u64(payload);
    key.low = take_u64(payload);
    if (id < before_.first_id) fail(ErrorKind::bad_file, "the journal has an id that was not its to give");
    if (id - before_.first_id >= rows_.size()) add_rows(std::size_t{id - before_.first_id} + 1 - rows_.size());
    Row& known = row(id);
    if (known.state == State::unused) {
      known.key = key;
      add_to_table(id);
    }
    set(id, State::sent);
    ids.push_back(id);
  }
  batches_.emplace(next_batch_++, std::move(ids));
}

void Journal::read_looked_for(std::string_view payload) {
  const std::uint64_t batch = take_u64(payload);
  for (const std::uint32_t id : settle(batch)) set(id, State::stored);
  for (const std::uint32_t id : take_ids(payload)) set(id, State::missing);
}

// --- the table of keys

void Journal::add_rows(std::size_t count) {
  rows_.resize(rows_.size() + count);
  counts_[static_cast<std::size_t>(State::unused)] += count;
}

Journal::Row& Journal::row(std::uint32_t id) {
  if (id < before_.first_id || id - before_.first_id >= rows_.size()) {
    fail(ErrorKind::bad_file, "the journal names an id that it never gave");
  }
  return rows_[id - before_.first_id];
}

std::optional<std::uint32_t> Journal::find(const TextKey& key) const {
  for (std::size_t slot = key.low & (table_.size() - 1);; slot = (slot + 1) & (table_.size() - 1)) {
    if (table_[slot] == 0) return std::nullopt;
    if (rows_[table_[slot] - 1].key == key) return before_.first_id + (table_[slot] - 1);
  }
}

void Journal::add_to_table(std::uint32_t id) {
  if (2 * (in_table_ + 1) > table_.size()) {
    std::vector<std::uint32_t> old(2 * table_.size());
    old.swap(table_);
    for (const std::uint32_t entry : old) {
      if (entry != 0) put_in_table(entry);
    }
  }
  put_in_table(id - before_.first_id + 1);
  ++in_table_;
}

void Journal::put_in_table(std::uint32_t entry) noexcept {
  std::size_t slot = rows_[entry - 1].key.low & (table_.size() - 1);
  while (table_[slot] != 0) slot = (slot + 1) & (table_.size() - 1);
  table_[slot] = entry;
}

void Journal::set(std::uint32_t id, State state) {
  Row& changed = row(id);
  --counts_[static_cast<std::size_t>(changed.state)];
  changed.state = state;
  ++counts_[static_cast<std::size_t>(state)];
  if (changed.open || state == State::unused || state == State::claimed || state == State::stored) return;
  open_.push_back(id);
  changed.open = true;
}

// --- a run

Journal::Claimed Journal::claim(const TextKey& key) {
  const std::scoped_lock lock(mutex_);
  if (const auto id = find(key)) {
    if (row(*id).state == State::missing) {
      set(*id, State::claimed);
      return {.claim = Claim::send, .id = *id, .again = true};
    }
    return {.claim = *id - before_.first_id < first_of_run_ ? Claim::stored : Claim::repeated, .id = *id};
  }
  if (before_.first_id + rows_.size() >= kIds) fail(ErrorKind::bad_input, "all {} ids of the dataset are used", kIds);
  const auto id = static_cast<std::uint32_t>(before_.first_id + rows_.size());
  Change change(*this);
  add_rows(1);
  rows_.back().key = key;
  add_to_table(id);
  set(id, State::claimed);
  change.done();
  return {.claim = Claim::send, .id = id};
}

void Journal::write(std::uint8_t kind, std::string_view payload, bool on_disk) {
  file_.append(kind, payload);
  if (on_disk) file_.sync();
}

std::uint64_t Journal::sending(std::span<const std::uint32_t> ids) {
  const std::scoped_lock lock(mutex_);
  std::string payload;
  for (const std::uint32_t id : ids) {
    const TextKey key = row(id).key;
    put_u32(payload, id);
    put_u64(payload, key.high);
    put_u64(payload, key.low);
  }
  Change change(*this);
  write(kSending, payload, true);
  for (const std::uint32_t id : ids) set(id, State::sent);
  batches_.emplace(next_batch_, std::vector(ids.begin(), ids.end()));
  change.done();
  return next_batch_++;
}

// Not synced: what is lost of it makes a batch unsure, and it is looked for.
void Journal::acknowledged(std::uint64_t batch) {
  const std::scoped_lock lock(mutex_);
  std::string payload;
  put_u64(payload, batch);
  Change change(*this);
  write(kAcknowledged, payload, false);
  for (const std::uint32_t id : settle(batch)) set(id, State::acknowledged);
  change.done();
}

void Journal::looked_for(std::uint64_t batch, std::span<const std::uint32_t> missing) {
  const std::scoped_lock lock(mutex_);
  std::string payload;
  put_u64(payload, batch);
  for (const std::uint32_t id : missing) put_u32(payload, id);
  Change change(*this);
  write(kLookedFor, payload, false);
  for (const std::uint32_t id : settle(batch)) set(id, State::stored);
  for (const std::uint32_t id : missing) set(id, State::missing);
  change.done();
}

void Journal::looked_for_all(std::span<const std::uint32_t> missing) {
  std::vector<std::uint32_t> sorted(missing.begin(), missing.end());
  std::ranges::sort(sorted);
  const std::vector<std::uint32_t> known = this->missing();
  const std::scoped_lock lock(mutex_);
  // Runs that change nothing leave no trace.
  const auto count = [this](State state) { return counts_[static_cast<std::size_t>(state)]; };
  if (count(State::sent) == 0 && count(State::acknowledged) == 0 && sorted == known) return;
  std::string payload;
  for (const std::uint32_t id : missing) put_u32(payload, id);
  Change change(*this);
  write(kLookedForAll, payload, true);
  settle_all(missing);
  change.done();
}

void Journal::settle_all(std::span<const std::uint32_t> missing) {
  batches_.clear();
  std::erase_if(open_, [this](std::uint32_t id) {
    Row& settled = row(id);
    if (settled.state == State::claimed) return false;
    set(id, State::stored);
    settled.open = false;
    return true;
  });
  for (const std::uint32_t id : missing) set(id, State::missing);
}

std::vector<std::uint32_t> Journal::settle(std::uint64_t batch) {
  if (batch >= next_batch_) fail(ErrorKind::bad_file, "the journal names a batch that it does not have");
  auto settled = batches_.extract(batch);
  return settled.empty() ? std::vector<std::uint32_t>{} : std::move(settled.mapped());
}

Journal::Counts Journal::counts() const {
  const std::scoped_lock lock(mutex_);
  const auto count = [this](State state) { return counts_[static_cast<std::size_t>(state)]; };
  return {.stored = count(State::stored),
          .acknowledged = count(State::acknowledged),
          .unsure = count(State::sent),
          .missing = count(State::missing)};
}

std::uint64_t Journal::next_id() const {
  const std::scoped_lock lock(mutex_);
  return before_.first_id + rows_.size();
}

std::vector<std::uint32_t> Journal::open_ids(State state) const {
  const std::scoped_lock lock(mutex_);
  std::vector<std::uint32_t> ids;
  std::ranges::copy_if(open_, std::back_inserter(ids),
                       [&](std::uint32_t id) { return rows_[id - before_.first_id].state == state; });
  std::ranges::sort(ids);
  return ids;
}

std::vector<std::uint32_t> Journal::unsure() const { return open_ids(State::sent); }

std::vector<std::uint32_t> Journal::missing() const { return open_ids(State::missing); }

std::vector<std::uint32_t> Journal::sent() const {
  const std::scoped_lock lock(mutex_);
  std::vector<std::uint32_t> ids;
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    const State state = rows_[i].state;
    if (state == State::unused || state == State::claimed) continue;
    ids.push_back(before_.first_id + static_cast<std::uint32_t>(i));
  }
  return ids;
}

// The name says which dataset it is of as far as a file's name can; the digest tells apart what looks alike then.
std::filesystem::path journal_path(const std::filesystem::path& folder, const std::string& dataset) {
  std::string name;
  for (const char c : std::string_view(dataset).substr(std::min(dataset.size(), dataset.find("://") + 3))) {
    const bool plain =
        (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '.';
    name += plain ? c : '_';
  }
  if (name.size() > 80) name.resize(80);
  return folder / "longbow" / fmt::format("{}-{}.journal", name, sha256(dataset).substr(0, 12));
}

}  // namespace quarrel
