// What stands behind the public Model: a loaded model of the session's, and what the library adds to it (where warnings
// go, a thread for callbacks, which process it belongs to). Made whole by `Model::load`; any thread may use it.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string_view>

#include "api/callback_thread.h"
#include "api/errors.h"
#include "api/home_process.h"
#include "backend/backend.h"
#include "base/log.h"
#include "quarrel/quarrel.h"
#include "session/loaded_model.h"

namespace quarrel::api {

// Lines to the user's callback, where there is one.
class CallbackLog : public Log {
 public:
  explicit CallbackLog(std::function<void(std::string_view)> warning) : warning_(std::move(warning)) {}

  // While a model loads: what the callback throws is kept there, and ends the load.
  void write_loading(std::string_view line, Caught& caught) {
    if (!warning_) return;
    const auto call = [&] {
      warning_(line);
      return true;
    };
    if (!caught.call(call)) refuse(ErrorKind::cancelled, "the warning's callback threw");
  }
  // Afterwards: what it throws concerns nobody.
  void write(LogLevel level, std::string_view line) override {
    if (!warning_ || level < LogLevel::warning) return;
    try {
      warning_(line);
    } catch (...) {
      return;
    }
  }

 private:
  std::function<void(std::string_view)> warning_;
};

// Where a loaded model is brought when nobody holds it any more, so that it ends on the thread of the last user and
// before that goes on: the engine, which may be the last to hold it, cannot end itself. Any thread.
class LastRest {
 public:
  static std::function<void(std::unique_ptr<LoadedModel>)> entrance(std::shared_ptr<LastRest> rest);
  void await_model() noexcept;  // and end it
  void abandon() noexcept;      // nobody will: whoever brings it has to

 private:
  void take(std::unique_ptr<LoadedModel> model) noexcept;

  std::mutex mutex_;
  std::condition_variable came_;
  std::unique_ptr<LoadedModel> model_;
  bool abandoned_ = false;
};

struct Model::Impl {
  explicit Impl(std::function<void(std::string_view)> warning)
      : log(std::make_shared<CallbackLog>(std::move(warning))), rest(std::make_shared<LastRest>()) {}
  ~Impl();
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  HomeProcess home;
  std::shared_ptr<CallbackLog> log;
  std::shared_ptr<LastRest> rest;
  std::shared_ptr<Device> device;
  std::shared_ptr<LoadedModel> loaded;
  ModelInfo info = {};
  CallbackThread callbacks;
};

}  // namespace quarrel::api
