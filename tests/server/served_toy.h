// A service with a toy, and requests to it without sockets: what a test wants to hold up it holds up itself.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "backend/create.h"
#include "server/generation_call.h"
#include "session/session_support.h"
#include "support/gate.h"

namespace quarrel::test {

class ServedToy : public testing::Test {
 protected:
  explicit ServedToy(ServiceOptions options = {},
                     std::shared_ptr<Device> device = make_device({.backend = "cpu", .threads = 2})) {
    options.models = {write_toy_chat(folder_.path(), {.context = 512}).string()};
    options.text_threads = 1;
    service_ =
        std::make_unique<Service>(std::move(options), std::move(device),
                                  ModelStore(StorePaths{.quarrel = folder_.path() / "store", .ollama = {}}), log_);
    service_->poster()->set([this](std::function<void()> task) {
      const std::scoped_lock lock(mutex_);
      tasks_.push_back(std::move(task));
      came_.notify_all();
    });
  }

  // Nothing that an engine has to say, or a load, comes after the test.
  void TearDown() override {
    write_until([this] {
      return std::ranges::none_of(service_->registry().list(), [](const ModelRegistry::Status& status) {
        return status.in_use || status.state == ModelRegistry::State::loading;
      });
    });
  }

  // An answer that never ends by itself.
  static Ask endless(const LoadedModel&) {
    Ask ask{.prompt = std::string("Hello there"), .seed = 7, .overflow = Overflow::shift};
    ask.stop_tokens.emplace();
    return ask;
  }

  // Makes text of what engines have brought, on this thread, until that is so.
  template <typename Condition>
  void write_until(const Condition& condition) {
    while (!condition()) {
      std::function<void()> task;
      {
        std::unique_lock lock(mutex_);
        if (!came_.wait_for(lock, std::chrono::milliseconds(1), [this] { return !tasks_.empty(); })) continue;
        task = std::move(tasks_.front());
        tasks_.pop_front();
      }
      task();
      ++written_;
    }
  }

  // The one thread for texts, until the gate is opened.
  test::Gate hold_text_work() {
    const Gate gate;
    service_->run_text_work([gate] { gate.pass(); });
    gate.wait_until_reached();
    return gate;
  }

  // The one thread for texts takes its tasks in turn.
  void finish_text_work() {
    std::promise<void> over;
    service_->run_text_work([&over] { over.set_value(); });
    over.get_future().wait();
  }

  std::shared_ptr<http::Exchange> exchange(std::string body = {}) {
    return std::make_shared<http::Exchange>(
        http::Request{.body = std::move(body), .record = service_->new_record({.route = "POST /test"})},
        std::size_t{1} << 20, [] {});
  }

  EngineCounters counters() const {
    const auto watched = service_->registry().watch();
    return watched.empty() ? EngineCounters{} : watched.front().counters;
  }

  TempDir folder_;
  KeptLog log_;
  std::mutex mutex_;
  std::condition_variable came_;
  std::deque<std::function<void()>> tasks_;  // guarded
  std::size_t written_ = 0;                  // tasks that were done
  std::unique_ptr<Service> service_;
};

}  // namespace quarrel::test
