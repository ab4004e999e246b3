// After a fork: the child has the model's memory and none of its threads. Every call says so, and nothing hangs.
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <string>

#include "api/c_api_support.h"

namespace quarrel::test {
namespace {

// What `act` says in a forked child; "hangs" where it does not end.
std::string in_child(const std::function<std::string()>& act) {
  std::array<int, 2> ends{};
  if (::pipe(ends.data()) != 0) return "no pipe";
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);
    std::string said;
    try {
      said = act();
    } catch (const api::Error& error) {
      said = error.kind() == api::ErrorKind::usage ? std::string("usage: ") + error.what() : error.what();
    }
    const auto written = ::write(ends[1], said.data(), said.size());
    ::_exit(written == static_cast<ssize_t>(said.size()) ? 0 : 1);
  }
  ::close(ends[1]);
  std::string said;
  std::array<char, 512> buffer{};
  for (ssize_t count = 0; (count = ::read(ends[0], buffer.data(), buffer.size())) > 0;) {
    said.append(buffer.data(), static_cast<std::size_t>(count));
  }
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  if (WIFSIGNALED(status)) return WTERMSIG(status) == SIGALRM ? "hangs" : "crashes";
  return said;
}

using ApiFork = CApiTest;

TEST_F(ApiFork, TheChildIsToldSo) {
  const std::string refused = "usage: the model belongs to process " + std::to_string(::getpid());
  api::Generation generation = model_.open(kPrompt, unending(-1));
  generation.next();
  const api::CancelToken cancel;
  const std::vector<std::string> texts{"a"};
  const std::vector<std::function<void()>> calls{
      [&] { model_.generate(kPrompt, unending(2)); },
      [&] { model_.open(kPrompt, unending(2)); },
      [&] { model_.start(kPrompt, unending(2), {}); },
      [&] { model_.embed(texts); },
      [&] { model_.tokenize("a"); },
      [&] { model_.info(); },
      [&] { model_.metrics(); },
      [&] { generation.next(); },
      [&] { generation.wait(); },
      [&] { generation.event_fd(); },
      [&] { cancel.cancel(); },
  };
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const std::string said = in_child([&]() -> std::string {
      calls[i]();
      return "went well";
    });
    EXPECT_TRUE(said.starts_with(refused)) << i << ": " << said;
  }
  // The parent goes on.
  generation.close();
  EXPECT_EQ(model_.generate(kPrompt, unending(4)).tokens.size(), 4u);
}

TEST_F(ApiFork, TheChildMayLetGoOfEverything) {
  auto model = std::make_unique<api::Model>(api::Model::load(file_, small_load()));
  auto generation = std::make_unique<api::Generation>(model->open(kPrompt, unending(-1)));
  auto calling = std::make_unique<api::Generation>(model->start(kPrompt, unending(-1), {}));
  const std::string said = in_child([&]() -> std::string {
    generation->cancel();
    calling->cancel_answer(0);
    generation.reset();
    calling.reset();
    model.reset();
    return "went well";
  });
  EXPECT_EQ(said, "went well");
  EXPECT_FALSE(generation->done());
  generation->cancel();
  generation->wait();
}

TEST_F(ApiFork, TheChildMayLoadItsOwn) {
  const std::vector<api::Token> expected = model_.generate(kPrompt, unending(8)).tokens;
  const std::string said = in_child([&]() -> std::string {
    const api::Model own = api::Model::load(file_, small_load());
    return own.generate(kPrompt, unending(8)).tokens == expected ? "the same" : "something else";
  });
  EXPECT_EQ(said, "the same");
}

TEST_F(ApiFork, InCToo) {
  const std::string said = in_child([&]() -> std::string {
    const quarrel_status status =
        quarrel_generate_text(handle_, quarrel_text_of("a"), nullptr, nullptr, nullptr, nullptr, &error_);
    quarrel_model_free(handle_);
    return status == QUARREL_USAGE ? error_.message : "something else";
  });
  EXPECT_TRUE(said.starts_with("the model belongs to process")) << said;
}

}  // namespace
}  // namespace quarrel::test
