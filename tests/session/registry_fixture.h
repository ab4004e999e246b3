// What the tests of the registry share: toys in a folder, a clock that stands still, events that can be waited for and
// held up, and the outcome of a call that does not wait.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "backend/create.h"
#include "base/error.h"
#include "engine/answers.h"
#include "session/model_registry.h"
#include "support/gate.h"
#include "support/rewritten_toy.h"
#include "support/temp_dir.h"
#include "support/toy_model.h"

namespace quarrel::test {

// What a call came to.
class Outcome {
 public:
  ModelRegistry::OnAcquired acquired() {
    return [state = state_](ModelRegistry::Lease model, const std::exception_ptr& error) {
      state->complete(std::move(model), error, false);
    };
  }
  ModelRegistry::OnExchanged exchanged() {
    return [state = state_](const std::exception_ptr& error) { state->complete(nullptr, error, false); };
  }
  ModelRegistry::OnUnloaded unloaded() {
    return [state = state_](bool found) { state->complete(nullptr, nullptr, found); };
  }

  bool done() const {
    const std::scoped_lock lock(state_->mutex);
    return state_->calls > 0;
  }
  Outcome& wait() {
    std::unique_lock lock(state_->mutex);
    state_->changed.wait(lock, [this] { return state_->calls > 0; });
    return *this;
  }
  int calls() const {
    const std::scoped_lock lock(state_->mutex);
    return state_->calls;
  }
  // What `wait` has waited for.
  ModelRegistry::Lease take() { return std::exchange(state_->model, nullptr); }
  bool found() const { return state_->found; }
  std::thread::id thread() const { return state_->thread; }
  std::optional<ErrorKind> error() const { return state_->error; }  // none: it went well
  const std::string& message() const { return state_->message; }

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    int calls = 0;
    bool found = false;
    ModelRegistry::Lease model;
    std::optional<ErrorKind> error;
    std::string message;
    std::thread::id thread;

    void complete(ModelRegistry::Lease lease, const std::exception_ptr& failure, bool was_found) {
      const std::scoped_lock lock(mutex);
      ++calls;
      found = was_found;
      model = std::move(lease);
      thread = std::this_thread::get_id();
      if (failure) {
        try {
          std::rethrow_exception(failure);
        } catch (const Error& known) {
          error = known.kind();
          message = known.what();
        }
      }
      changed.notify_all();
    }
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

class LockedLog final : public Log {
 public:
  void write(LogLevel, std::string_view line) override {
    const std::scoped_lock lock(mutex_);
    text_ += std::string(line) + "\n";
  }
  std::string text() const {
    const std::scoped_lock lock(mutex_);
    return text_;
  }

 private:
  mutable std::mutex mutex_;
  std::string text_;
};

class RegistryTest : public testing::Test {
 protected:
  using Lease = ModelRegistry::Lease;
  using Kind = LoadEvent::Kind;
  using State = ModelRegistry::State;
  using Names = std::vector<std::string>;

  explicit RegistryTest(std::shared_ptr<Device> device = make_device({.backend = "cpu", .threads = 2}))
      : device_(std::move(device)) {
    for (const char* toy : {"llama", "qwen3", "granite"}) write_toy(toy, folder_.path(), {.context = 96});
  }

  std::filesystem::path file(const std::string& name) const { return folder_.path() / (name + ".gguf"); }
  static LoadOptions load_options() { return {.executor = {.context = 96, .sequences = 2, .batch_rows = 32}}; }
  std::uint64_t bytes_of(const std::string& name, const LoadOptions& options = load_options()) const {
    const GgufFile model = GgufFile::open(file(name));
    return plan_memory(model, *device_, settled(model, options.executor)).total();
  }
  // Room for either, but not for both.
  std::uint64_t room_for_one() const { return std::max(bytes_of("llama"), bytes_of("qwen3")); }

  // On a clock that stands still until a test moves it.
  RegistryOptions options(std::uint64_t budget = 0) {
    return {.load = load_options(),
            .budget = budget,
            .keep_alive = std::chrono::minutes(1),
            .patience = std::chrono::minutes(1),
            .resolve = [this](const std::string& name) { return resolve(name); },
            .on_event = [this](const LoadEvent& event) { record(event); },
            .now = [this] { return Clock::time_point(std::chrono::nanoseconds(time_.load())); }};
  }
  std::unique_ptr<ModelRegistry> registry(RegistryOptions options) {
    return std::make_unique<ModelRegistry>(device_, std::move(options), log_);
  }
  std::unique_ptr<ModelRegistry> registry(std::uint64_t budget = 0) { return registry(options(budget)); }
  Clock::time_point now() const { return Clock::time_point(std::chrono::nanoseconds(time_.load())); }
  void advance(ModelRegistry& models, std::chrono::nanoseconds time) {
    time_ += time.count();
    models.look();
  }
  // Returns when the registry's thread has seen everything that happened before.
  static void settle(ModelRegistry& models) { EXPECT_THROW(models.acquire_and_wait("a name that nobody has"), Error); }
  // The clock runs until the call is over.
  void run_out_of_patience(ModelRegistry& models, const Outcome& outcome) {
    while (!outcome.done()) {
      advance(models, std::chrono::minutes(1));
      settle(models);
    }
  }

  static Names names(const ModelRegistry& registry) {
    Names all;
    for (const ModelRegistry::Status& status : registry.list()) all.push_back(status.name);
    return all;
  }
  int count(Kind kind) {
    const std::scoped_lock lock(mutex_);
    return static_cast<int>(std::ranges::count(events_, kind, &LoadEvent::kind));
  }
  void wait_for(Kind kind, int times = 1) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return std::ranges::count(events_, kind, &LoadEvent::kind) >= times; });
  }
  std::vector<LoadEvent> events() {
    const std::scoped_lock lock(mutex_);
    return events_;
  }
  // Called with each event after it was recorded.
  void set_on_event(std::function<void(const LoadEvent&)> call) {
    const std::scoped_lock lock(mutex_);
    on_event_ = std::move(call);
  }
  // The next event of this kind about this name waits for the gate.
  void hold(const Gate& gate, Kind kind, const std::string& name) {
    set_on_event([gate, kind, name](const LoadEvent& event) {
      if (event.kind == kind && event.name == name) gate.pass();
    });
  }

  // A model that can be loaded, but whose numbers are not finite.
  std::filesystem::path write_mute() const {
    ToyRewriter toy("llama", {.context = 96});
    toy.change = [](const ToyTensor& tensor, ToyRewriter& to) {
      if (tensor.name != "blk.1.ffn_down.weight") return to.keep(tensor);
      std::vector<std::byte> bytes = tensor.bytes;
      const float poison = std::numeric_limits<float>::quiet_NaN();
      std::memcpy(bytes.data(), &poison, sizeof poison);
      to.add_bytes(tensor.name, tensor.type, tensor.shape, std::move(bytes));
    };
    return toy.write(file("mute"));
  }
  static EngineRequest request() { return text_request({1, 2, 3, 4, 5}, 8); }
  static ErrorKind kind_of(const std::function<void()>& call) {
    try {
      call();
    } catch (const Error& error) {
      return error.kind();
    }
    ADD_FAILURE() << "nothing was thrown";
    return ErrorKind::usage;
  }

  LockedLog log_;
  TempDir folder_;
  std::shared_ptr<Device> device_;

 private:
  ResolvedModel resolve(const std::string& name) const {
    if (!std::filesystem::exists(file(name))) fail(ErrorKind::not_found, "no model is called '{}'", name);
    ResolvedModel model{};
    model.path = file(name);
    model.name = name;
    return model;
  }
  void record(const LoadEvent& event) {
    std::function<void(const LoadEvent&)> call;
    {
      const std::scoped_lock lock(mutex_);
      events_.push_back(event);
      changed_.notify_all();
      call = on_event_;
    }
    if (call) call(event);
  }

  std::atomic<std::int64_t> time_ = 1'000'000'000'000;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<LoadEvent> events_;
  std::function<void(const LoadEvent&)> on_event_;
};

}  // namespace quarrel::test
