#include <gtest/gtest.h>

#include <thread>

#include "base/subprocess.h"
#include "support/temp_dir.h"
#include "unit/gguf_support.h"

namespace quarrel {
namespace {

using test::expect_error;
using test::TempDir;
using namespace std::chrono_literals;

TEST(Subprocess, CapturesOutputAndPassesArgumentsAsTheyAre) {
  const ProcessResult result = run_process({"echo", "a  b", "$HOME", "'; rm x"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.output, "a  b $HOME '; rm x\n");
}

TEST(Subprocess, ExitCodesAndSignals) {
  EXPECT_EQ(run_process({"sh", "-c", "exit 7"}).exit_code, 7);
  EXPECT_EQ(run_process({"sh", "-c", "kill -9 $$"}).exit_code, 128 + 9);
  EXPECT_EQ(run_process({"sh", "-c", "echo out; echo err >&2"}).output, "out\nerr\n");
}

TEST(Subprocess, StandardInputIsEmpty) { EXPECT_EQ(run_process({"cat"}).output, ""); }

TEST(Subprocess, AMissingProgramIsNotFound) {
  expect_error(ErrorKind::not_found, {"quarrel-no-such-program"}, [] { run_process({"quarrel-no-such-program"}); });
  expect_error(ErrorKind::usage, {}, [] { run_process({}); });
  expect_error(ErrorKind::usage, {}, [] { run_process({""}); });
}

TEST(Subprocess, FolderAndEnvironment) {
  const TempDir folder;
  ProcessOptions options;
  options.directory = std::filesystem::canonical(folder.path());
  options.environment = {{"QUARREL_TEST", "x y"}};
  const ProcessResult result = run_process({"sh", "-c", "pwd -P; echo $QUARREL_TEST"}, options);
  EXPECT_EQ(result.output, options.directory.string() + "\nx y\n");
}

TEST(Subprocess, KeepsTheEndOfLongOutput) {
  ProcessOptions options;
  options.output_limit = 100;
  const ProcessResult result = run_process({"sh", "-c", "seq 1 200000"}, options);
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.output.size(), 100U);
  EXPECT_EQ(result.output.substr(result.output.size() - 7), "200000\n");
}

TEST(Subprocess, ATimeoutEndsTheProgramAndWhatItStarted) {
  const TempDir folder;
  ProcessOptions options;
  options.timeout = 2s;  // the child is written down by then
  options.directory = folder.path();
  expect_error(ErrorKind::io, {"did not finish"},
               [&] { run_process({"sh", "-c", "sleep 100 & echo $! > child; wait"}, options); });
  const std::string child = test::read_file(folder / "child");
  ASSERT_FALSE(child.empty());
  // The grandchild got the signal too; whoever inherited it may need a moment to clear it away.
  const std::string look = "for i in 1 2 3 4 5 6 7 8 9 10; do s=$(ps -o stat= -p " + child.substr(0, child.size() - 1) +
                           "); case \"$s\" in ''|Z*) exit 0;; esac; sleep 0.1; done; exit 1";
  EXPECT_EQ(run_process({"sh", "-c", look}).exit_code, 0);
}

TEST(Subprocess, CancelsFromAnotherThread) {
  std::stop_source stop;
  ProcessOptions options;
  options.stop = stop.get_token();
  std::jthread canceller([&] {
    std::this_thread::sleep_for(50ms);
    stop.request_stop();
  });
  expect_error(ErrorKind::cancelled, {"'sleep'"}, [&] { run_process({"sleep", "100"}, options); });
}

TEST(Subprocess, AProgramThatIgnoresSigtermIsKilled) {
  ProcessOptions options;
  options.timeout = 100ms;
  expect_error(ErrorKind::io, {},
               [&] { run_process({"sh", "-c", "trap '' TERM; while :; do sleep 0.1; done"}, options); });
}

TEST(Subprocess, AChildWithClosedOutputIsWaitedFor) {
  int ticks = 0;
  ProcessOptions options;
  options.tick = [&] { ++ticks; };
  EXPECT_EQ(run_process({"sh", "-c", "exec >&- 2>&-; sleep 0.3; exit 3"}, options).exit_code, 3);
  EXPECT_GT(ticks, 0);
}

TEST(Subprocess, AnErrorFromTickEndsTheProgram) {
  ProcessOptions options;
  options.tick = [] { fail(ErrorKind::bad_input, "enough"); };
  expect_error(ErrorKind::bad_input, {"enough"}, [&] { run_process({"sleep", "100"}, options); });
}

}  // namespace
}  // namespace quarrel
