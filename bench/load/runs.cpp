#include "load/runs.h"

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <memory>

namespace quarrel::load {

namespace asio = boost::asio;

namespace {

constexpr std::chrono::milliseconds kLook{20};

class Runner {
 public:
  Runner(const Target& target, const Load& load, Run& run) : target_(target), load_(load), run_(run) {}

  void go() {
    connect_idle();
    run_.summary.before = process_use(load_.pid);
    start_ = Clock::now();
    left_ = load_.rate > 0.0 ? run_.questions.size() : static_cast<std::size_t>(load_.clients);
    if (load_.rate > 0.0) {
      asio::co_spawn(io_, arrivals(), asio::detached);
    } else {
      for (int i = 0; i < load_.clients; ++i) asio::co_spawn(io_, one_client(), asio::detached);
    }
    asio::co_spawn(io_, watch(), asio::detached);
    if (target_.protocol == Protocol::websocket) {
      for (const auto& client : idle_) asio::co_spawn(io_, stay(*client), asio::detached);
    }
    io_.run();
    const ProcessUse before = run_.summary.before;
    const double seconds = ended_;
    run_.summary = summarize(run_.outcomes, seconds);
    run_.summary.before = before;
    run_.summary.after = after_;
    run_.summary.most_resident = most_;
  }

 private:
  // Some at a time: a server's backlog is bounded.
  void connect_idle() {
    for (int i = 0; i < load_.idle; ++i) idle_.push_back(std::make_unique<Client>(io_, target_));
    constexpr std::size_t kAtOnce = 64;
    for (std::size_t begin = 0; begin < idle_.size(); begin += kAtOnce) {
      for (std::size_t i = begin; i < std::min(begin + kAtOnce, idle_.size()); ++i) {
        asio::co_spawn(io_, connect(*idle_[i]), asio::detached);
      }
      io_.run();
      io_.restart();
    }
  }

  asio::awaitable<void> connect(Client& client) {
    const bool open = co_await client.connect();
    if (!open && target_.protocol != Protocol::websocket) ++run_.idle_lost;  // of the others `stay` knows
  }

  asio::awaitable<void> stay(Client& client) {
    co_await client.stay();
    if (left_ > 0) ++run_.idle_lost;
  }

  asio::awaitable<void> one_client() {
    Client client(io_, target_);
    while (next_ < run_.questions.size()) {
      const std::size_t place = next_++;
      run_.outcomes[place] = co_await client.ask(run_.questions[place], start_);
    }
    client_ended();
  }

  asio::awaitable<void> arrivals() {
    asio::steady_timer timer(io_);
    for (std::size_t i = 0; i < run_.questions.size(); ++i) {
      const std::chrono::duration<double> due(static_cast<double>(i) / load_.rate);
      timer.expires_at(start_ + std::chrono::duration_cast<Clock::duration>(due));
      boost::system::error_code ignored;
      co_await timer.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
      asio::co_spawn(io_, one_question(i), asio::detached);
    }
  }

  asio::awaitable<void> one_question(std::size_t place) {
    Client client(io_, target_);
    run_.outcomes[place] = co_await client.ask(run_.questions[place], start_);
    client_ended();
  }

  void client_ended() {
    if (--left_ > 0) return;
    ended_ = seconds_since(start_);
    after_ = process_use(load_.pid);
    for (const auto& client : idle_) client->close();
  }

  // The server's memory while it works.
  asio::awaitable<void> watch() {
    asio::steady_timer timer(io_);
    while (left_ > 0 && load_.pid > 0) {
      most_ = std::max(most_, process_use(load_.pid).resident);
      timer.expires_after(10 * kLook);
      boost::system::error_code ignored;
      co_await timer.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
    }
  }

  const Target& target_;
  const Load& load_;
  Run& run_;
  asio::io_context io_{1};
  std::vector<std::unique_ptr<Client>> idle_;
  Clock::time_point start_;
  std::size_t next_ = 0;
  std::size_t left_ = 0;
  double ended_ = 0.0;
  ProcessUse after_;
  std::uint64_t most_ = 0;
};

}  // namespace

Run run_load(const Target& target, const Load& load) {
  Run run;
  for (int i = 0; i < load.requests; ++i) {
    run.questions.push_back(make_question(load.first_number + static_cast<std::uint64_t>(i), load.words, load.output));
  }
  run.outcomes.resize(run.questions.size());
  Runner(target, load, run).go();
  return run;
}

void compare_alone(const Target& target, Run& run) {
  asio::io_context io{1};
  std::size_t differing = 0;
  const auto compare = [&]() -> asio::awaitable<void> {
    Client client(io, target);
    for (std::size_t i = 0; i < run.questions.size(); ++i) {
      if (!run.outcomes[i].whole) continue;
      const Outcome alone = co_await client.ask(run.questions[i], Clock::now());
      if (alone.text != run.outcomes[i].text) ++differing;
    }
  };
  asio::co_spawn(io, compare(), asio::detached);
  io.run();
  run.summary.compared = true;
  run.summary.differing = differing;
}

}  // namespace quarrel::load
