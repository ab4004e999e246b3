#include "server/http/http_server.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <condition_variable>
#include <list>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/thread_name.h"
#include "server/http/connection.h"

namespace quarrel::http {

namespace asio = boost::asio;
using boost::system::error_code;

namespace {

// Descriptors that are left to models' files, logs and listeners.
constexpr std::size_t kOtherDescriptors = 64;

// A connection is a descriptor, and the usual limit of 1024 would be met long before ours: then accepting fails for
// everybody. So the limit is raised as far as it goes, and what it leaves is the most.
std::size_t most_connections(std::size_t wanted) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return wanted;
  if (limit.rlim_cur < limit.rlim_max) {
    const rlim_t before = std::exchange(limit.rlim_cur, limit.rlim_max);
    if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) limit.rlim_cur = before;
  }
  const auto descriptors = static_cast<std::size_t>(limit.rlim_cur);
  return std::min(wanted, descriptors > 2 * kOtherDescriptors ? descriptors - kOtherDescriptors : descriptors / 2);
}

}  // namespace

class HttpServer::Core : public std::enable_shared_from_this<Core> {
 public:
  Core(const ServerOptions& options, Handler handler, Log& log)
      : options_(options), handler_(std::move(handler)), log_(log) {}

  void listen() {
    listen_tcp();
    if (!options_.unix_socket.empty()) listen_unix();
  }

  void start() {
    asio::co_spawn(accepting_, accept(shared_from_this(), tcp_), asio::detached);
    if (unix_.is_open()) asio::co_spawn(accepting_, accept(shared_from_this(), unix_), asio::detached);
    for (int i = 0; i < std::max(1, options_.threads); ++i) {
      threads_.emplace_back([this] {
        name_thread("quarrel-io");
        run();
      });
    }
  }

  void end() {
    begin_drain();
    {
      const std::scoped_lock lock(mutex_);
      ending_ = true;  // no connection is added from now on
    }
    asio::post(accepting_, [self = shared_from_this()] {
      error_code ignored;
      self->tcp_.close(ignored);
      self->unix_.close(ignored);
    });
    for (const std::shared_ptr<Connection>& connection : open()) connection->end();
    if (!threads_.empty()) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return connections_.empty(); });
    }
    {
      const std::scoped_lock lock(post_mutex_);
      ended_ = true;
    }
    // Not stopped but run out: what waits in it holds what it is about, this object too.
    work_.reset();
    if (threads_.empty()) run();
    for (std::thread& thread : threads_) thread.join();
    if (unix_bound_) ::unlink(options_.unix_socket.c_str());
  }

  void begin_drain() {
    draining_ = true;
    for (const std::shared_ptr<Connection>& connection : open()) connection->drain();
  }

  bool wait_idle(std::chrono::milliseconds time) {
    const auto until = std::chrono::steady_clock::now() + time;
    std::unique_lock lock(mutex_);
    return changed_.wait_until(lock, until, [&] {
      return std::ranges::none_of(connections_, [](const auto& each) { return each->has_request(); });
    });
  }

  std::uint16_t port() const noexcept { return port_; }
  std::size_t connections() const {
    const std::scoped_lock lock(mutex_);
    return connections_.size();
  }
  void post(std::function<void()> task) {
    const std::scoped_lock lock(post_mutex_);
    if (ended_) fail(ErrorKind::cancelled, "the server has ended");
    asio::post(io_, std::move(task));
  }

 private:
  // What a task throws (there is no memory for it) ends nobody else's.
  void run() {
    for (;;) {
      try {
        io_.run();
        return;
      } catch (const std::exception& error) {
        log_.warn("something went wrong in a connection: {}", error.what());
      }
    }
  }

  void listen_tcp() {
    error_code error;
    const asio::ip::address address = asio::ip::make_address(options_.address, error);
    if (error) fail(ErrorKind::usage, "'{}' is no address to listen on: give one like 127.0.0.1", options_.address);
    const asio::ip::tcp::endpoint endpoint(address, options_.port);
    const auto check = [&](const char* what) {
      if (error) {
        fail(ErrorKind::io, "cannot listen on {} port {}: {} ({})", options_.address, options_.port, error.message(),
             what);
      }
    };
    tcp_.open(endpoint.protocol(), error);
    check("open");
    tcp_.set_option(asio::socket_base::reuse_address(true), error);
    check("reuse");
    tcp_.bind(endpoint, error);
    check("bind");
    tcp_.listen(asio::socket_base::max_listen_connections, error);
    check("listen");
    port_ = tcp_.local_endpoint(error).port();
    check("port");
  }

  // Only its own user may connect. What is at the path and no dead socket is left alone.
  void listen_unix() {
    const std::string& path = options_.unix_socket;
    error_code error;
    struct stat there = {};
    if (::lstat(path.c_str(), &there) == 0) {
      if (!S_ISSOCK(there.st_mode)) fail(ErrorKind::usage, "{} exists and is no socket", path);
      asio::local::stream_protocol::socket probe(io_);
      probe.connect(path_endpoint(), error);
      if (!error) fail(ErrorKind::io, "cannot listen on {}: another server does", path);
      ::unlink(path.c_str());
    }
    const mode_t before = ::umask(0177);
    error = {};
    unix_.open(asio::local::stream_protocol(), error);
    if (!error) unix_.bind(path_endpoint(), error);
    ::umask(before);
    unix_bound_ = !error;
    if (!error) unix_.listen(asio::socket_base::max_listen_connections, error);
    if (error) fail(ErrorKind::io, "cannot listen on {}: {}", path, error.message());
  }

  asio::local::stream_protocol::endpoint path_endpoint() const {
    try {
      return {options_.unix_socket};
    } catch (const std::exception&) {
      fail(ErrorKind::usage, "{} is too long for a socket's path", options_.unix_socket);
    }
  }

  template <typename Acceptor>
  static asio::awaitable<void> accept(std::shared_ptr<Core> self, Acceptor& acceptor) {
    while (!self->ending_) {
      error_code error;
      Strand strand = asio::make_strand(self->io_.get_executor());
      auto socket = co_await acceptor.async_accept(strand, asio::redirect_error(asio::use_awaitable, error));
      if (error) {
        co_await self->after_failed_accept(error);
      } else {
        self->try_begin(Socket(std::move(socket)));
      }
    }
  }

  // Without file descriptors an accept fails at once, again and again.
  asio::awaitable<void> after_failed_accept(error_code error) {
    if (ending_ || error == asio::error::operation_aborted || error == asio::error::bad_descriptor) co_return;
    log_.warn("a connection could not be accepted: {}", error.message());
    asio::steady_timer pause(io_, std::chrono::milliseconds(100));
    co_await pause.async_wait(asio::use_awaitable);
  }

  void try_begin(Socket socket) {
    try {
      begin(std::move(socket));
    } catch (const std::exception& error) {
      log_.warn("a connection could not be accepted: {}", error.what());
    }
  }

  void begin(Socket socket) {
    auto connection = std::make_shared<Connection>(std::move(socket), nullptr, options_.limits, handler_, draining_);
    std::shared_ptr<Connection> victim;
    std::list<std::shared_ptr<Connection>>::iterator place;
    {
      const std::scoped_lock lock(mutex_);
      if (connections_.size() >= most_connections_) {
        const auto oldest = std::ranges::find_if(connections_, [](const auto& each) { return each->give_up_head(); });
        victim = oldest == connections_.end() ? connection : *oldest;
      }
      if (victim == connection || ending_) return;  // it is closed with the object
      place = connections_.insert(connections_.end(), connection);
    }
    if (victim != nullptr) victim->end();
    asio::co_spawn(connection->executor(), connection->run(),
                   [self = shared_from_this(), place](const std::exception_ptr&) { self->remove(place); });
  }

  void remove(std::list<std::shared_ptr<Connection>>::iterator place) {
    std::shared_ptr<Connection> last;  // let go without the lock
    {
      const std::scoped_lock lock(mutex_);
      last = std::move(*place);
      connections_.erase(place);
    }
    changed_.notify_all();
  }

  std::vector<std::shared_ptr<Connection>> open() const {
    const std::scoped_lock lock(mutex_);
    return {connections_.begin(), connections_.end()};
  }

  const ServerOptions options_;
  const std::size_t most_connections_ = most_connections(options_.limits.connections);
  const Handler handler_;
  Log& log_;
  asio::io_context io_;
  asio::executor_work_guard<asio::io_context::executor_type> work_{io_.get_executor()};
  Strand accepting_ = asio::make_strand(io_.get_executor());
  asio::ip::tcp::acceptor tcp_{accepting_};
  asio::local::stream_protocol::acceptor unix_{accepting_};
  bool unix_bound_ = false;
  std::uint16_t port_ = 0;
  std::atomic<bool> draining_ = false;
  std::atomic<bool> ending_ = false;
  std::vector<std::thread> threads_;
  std::mutex post_mutex_;
  bool ended_ = false;        // guarded by post_mutex_
  mutable std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  std::list<std::shared_ptr<Connection>> connections_;  // in the order they came
};

HttpServer::HttpServer(const ServerOptions& options, Handler handler, Log& log)
    : core_(std::make_shared<Core>(options, std::move(handler), log)) {
  core_->listen();
}

void HttpServer::start() { core_->start(); }

HttpServer::~HttpServer() { core_->end(); }

std::uint16_t HttpServer::port() const noexcept { return core_->port(); }
std::size_t HttpServer::connections() const noexcept { return core_->connections(); }
std::function<std::size_t()> HttpServer::connection_count() const {
  return [weak = std::weak_ptr(core_)] {
    const std::shared_ptr<Core> core = weak.lock();
    return core == nullptr ? 0 : core->connections();
  };
}
std::function<void(std::function<void()>)> HttpServer::poster() const {
  return [weak = std::weak_ptr(core_)](std::function<void()> task) {
    const std::shared_ptr<Core> core = weak.lock();
    if (core == nullptr) fail(ErrorKind::cancelled, "the server has ended");
    core->post(std::move(task));
  };
}
void HttpServer::begin_drain() { core_->begin_drain(); }
bool HttpServer::wait_idle(std::chrono::milliseconds time) { return core_->wait_idle(time); }

}  // namespace quarrel::http
