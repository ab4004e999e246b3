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
#include <filesystem>
#include <list>
#include <mutex>
#include <system_error>
#include <thread>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/thread_name.h"
#include "server/http/connection.h"
#include "server/http/sender.h"
#include "server/http/unexpected.h"

namespace quarrel::http {

namespace asio = boost::asio;
using boost::system::error_code;

namespace {

// Descriptors that are left to models' files, logs and listeners.
constexpr std::size_t kOtherDescriptors = 64;
constexpr std::chrono::milliseconds kPauseAfterFailure{100};

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

Peer peer_of(const asio::ip::tcp::endpoint& endpoint) {
  asio::ip::address address = endpoint.address();
  // What a socket for both kinds of address calls a client that came by the older.
  if (address.is_v6() && address.to_v6().is_v4_mapped()) {
    address = asio::ip::make_address_v4(asio::ip::v4_mapped, address.to_v6());
  }
  const std::string text = address.to_string();
  return {.address = text, .sender = sender_of(text), .loopback = address.is_loopback()};
}

Peer peer_of(const asio::local::stream_protocol::endpoint&) { return {.loopback = true, .unix_socket = true}; }

}  // namespace

class HttpServer::Core : public std::enable_shared_from_this<Core> {
 public:
  Core(const ServerOptions& options, Handler handler, Log& log)
      : options_(options), context_{.limits = options.limits, .handler = std::move(handler), .log = log}, log_(log) {}

  void listen() {
    reload_tls();
    listen_tcp(options_.port);
    for (const std::uint16_t port : options_.further_ports) listen_tcp(port);
    if (!options_.unix_socket.empty() && options_.unix_socket_optional) {
      try_unix();
    } else if (!options_.unix_socket.empty()) {
      listen_unix();
    }
  }

  void start() {
    for (auto& acceptor : tcp_) asio::co_spawn(accepting_, accept(shared_from_this(), acceptor), asio::detached);
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
      for (auto& acceptor : self->tcp_) acceptor.close(ignored);
      self->unix_.close(ignored);
    });
    for (const std::shared_ptr<Connection>& connection : open()) connection->end();
    // Somebody who has something to send may hold one that has ended already, and is about to post to its strand.
    context_.live->wait_for_none();
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
    context_.draining = true;
    for (const std::shared_ptr<Connection>& connection : open()) connection->drain();
  }

  bool wait_idle(std::chrono::milliseconds time) {
    const auto until = std::chrono::steady_clock::now() + time;
    std::unique_lock lock(mutex_);
    return changed_.wait_until(lock, until, [&] {
      return std::ranges::none_of(connections_, [](const auto& each) { return each->being_answered(); });
    });
  }

  void reload_tls() {
    if (options_.tls.certificate.empty()) return;
    std::shared_ptr<TlsContext> loaded = load_tls(options_.tls);
    const std::scoped_lock lock(mutex_);
    tls_ = std::move(loaded);
  }

  const std::vector<std::uint16_t>& ports() const noexcept { return ports_; }
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
        log_.try_warn("something went wrong in a connection: {}", error.what());
      }
    }
  }

  void listen_tcp(std::uint16_t port) {
    error_code error;
    const asio::ip::address address = asio::ip::make_address(options_.address, error);
    if (error) fail(ErrorKind::usage, "'{}' is not an address to listen on: give one like 127.0.0.1", options_.address);
    const asio::ip::tcp::endpoint endpoint(address, port);
    const auto check = [&](const char* what) {
      if (error) {
        fail(ErrorKind::io, "cannot listen on {} port {}: {} ({})", options_.address, port, error.message(), what);
      }
    };
    asio::ip::tcp::acceptor& acceptor = tcp_.emplace_back(accepting_);
    acceptor.open(endpoint.protocol(), error);
    check("open");
    acceptor.set_option(asio::socket_base::reuse_address(true), error);
    check("reuse");
    acceptor.bind(endpoint, error);
    check("bind");
    acceptor.listen(asio::socket_base::max_listen_connections, error);
    check("listen");
    ports_.push_back(acceptor.local_endpoint(error).port());
    check("port");
  }

  void try_unix() {
    try {
      make_private_folder(std::filesystem::path(options_.unix_socket).parent_path());
      listen_unix();
    } catch (const Error& error) {
      error_code ignored;
      unix_.close(ignored);
      log_.info("no Unix socket is listened on: {}", error.what());
    }
  }

  // Whoever else could write there could put a socket of their own in our place.
  static void make_private_folder(const std::filesystem::path& folder) {
    const int made = ::mkdir(folder.c_str(), 0700) == 0 ? 0 : errno;
    struct stat there = {};
    if (::lstat(folder.c_str(), &there) != 0) {
      fail(ErrorKind::io, "{} cannot be made: {}", folder.string(), std::generic_category().message(made));
    }
    if (!S_ISDIR(there.st_mode) || there.st_uid != ::geteuid() || (there.st_mode & 077) != 0) {
      fail(ErrorKind::io, "{} is not a folder of your own that is closed to others", folder.string());
    }
  }

  // Only its own user may connect. What is at the path and no dead socket is left alone.
  void listen_unix() {
    const std::string& path = options_.unix_socket;
    error_code error;
    struct stat there = {};
    if (::lstat(path.c_str(), &there) == 0) {
      if (!S_ISSOCK(there.st_mode)) fail(ErrorKind::usage, "{} exists and is not a socket", path);
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

  // Whatever happens to one connection, the next is accepted.
  template <typename Acceptor>
  static asio::awaitable<void> accept(std::shared_ptr<Core> self, Acceptor& acceptor) {
    bool failed = false;
    while (!self->ending_) {
      const bool pausing = std::exchange(failed, false);
      try {
        if (pausing) {
          asio::steady_timer pause(self->accepting_, kPauseAfterFailure);
          co_await pause.async_wait(asio::use_awaitable);
        }
        failed = !co_await self->accept_one(acceptor);
      } catch (const std::exception& error) {
        self->log_.try_warn("a connection could not be accepted: {}", error.what());
        failed = true;
        if (pausing) std::this_thread::sleep_for(kPauseAfterFailure);  // there is no memory even for a timer
      }
    }
  }

  // False: it failed, and would fail at once again, as it does without file descriptors.
  template <typename Acceptor>
  asio::awaitable<bool> accept_one(Acceptor& acceptor) {
    error_code error;
    typename Acceptor::endpoint_type peer;  // asked for later, a client that has gone has none
    Strand strand = asio::make_strand(io_.get_executor());
    auto socket = co_await acceptor.async_accept(strand, peer, asio::redirect_error(asio::use_awaitable, error));
    if (ending_ || error == asio::error::operation_aborted || error == asio::error::bad_descriptor) co_return true;
    if (error) {
      log_.warn("a connection could not be accepted: {}", error.message());
      co_return false;
    }
    constexpr bool may_encrypt = std::is_same_v<Acceptor, asio::ip::tcp::acceptor>;
    begin(Socket(std::move(socket)), peer_of(peer), may_encrypt);
    co_return true;
  }

  using Connections = std::list<std::shared_ptr<Connection>>;

  void begin(Socket socket, Peer peer, bool may_encrypt) {
    auto connection =
        std::make_shared<Connection>(std::move(socket), std::move(peer), may_encrypt ? tls() : nullptr, context_);
    std::shared_ptr<Connection> victim;
    Connections::iterator place;
    {
      const std::scoped_lock lock(mutex_);
      victim = who_makes_room(connection);
      if (victim == connection || ending_) return;  // it is closed with the object
      std::size_t& from_sender = from_sender_[connection->peer().sender];
      place = connections_.insert(connections_.end(), connection);
      ++from_sender;
    }
    try {
      if (victim != nullptr) victim->end();
      asio::co_spawn(connection->executor(), connection->run(),
                     [self = shared_from_this(), place](const std::exception_ptr& error) {
                       log_unexpected(self->log_, "a connection", error);
                       self->remove(place);
                     });
    } catch (...) {
      remove(place);
      throw;
    }
  }

  // Nobody (null) while there is room; then the oldest without a complete head, of the same sender where that has as
  // many as one may have; then the newcomer. Called with the lock.
  std::shared_ptr<Connection> who_makes_room(const std::shared_ptr<Connection>& newcomer) {
    const Limits& limits = context_.limits;
    const Peer& peer = newcomer->peer();
    const std::size_t most = peer.loopback ? limits.connections_per_local_address : limits.connections_per_address;
    const auto known = from_sender_.find(peer.sender);
    const bool sender_full = most > 0 && known != from_sender_.end() && known->second >= most;
    if (!sender_full && connections_.size() < most_connections_) return nullptr;
    const auto oldest = std::ranges::find_if(connections_, [&](const auto& each) {
      return (!sender_full || each->peer().sender == peer.sender) && each->give_up_head();
    });
    return oldest == connections_.end() ? newcomer : *oldest;
  }

  void remove(Connections::iterator place) {
    std::shared_ptr<Connection> last;  // let go without the lock
    {
      const std::scoped_lock lock(mutex_);
      last = std::move(*place);
      connections_.erase(place);
      const auto known = from_sender_.find(last->peer().sender);
      if (--known->second == 0) from_sender_.erase(known);
    }
    changed_.notify_all();
  }

  std::shared_ptr<TlsContext> tls() const {
    const std::scoped_lock lock(mutex_);
    return tls_;
  }

  std::vector<std::shared_ptr<Connection>> open() const {
    const std::scoped_lock lock(mutex_);
    return {connections_.begin(), connections_.end()};
  }

  const ServerOptions options_;
  const std::size_t most_connections_ = most_connections(options_.limits.connections);
  ConnectionContext context_;
  Log& log_;
  asio::io_context io_;
  asio::executor_work_guard<asio::io_context::executor_type> work_{io_.get_executor()};
  Strand accepting_ = asio::make_strand(io_.get_executor());
  std::list<asio::ip::tcp::acceptor> tcp_;
  asio::local::stream_protocol::acceptor unix_{accepting_};
  bool unix_bound_ = false;
  std::vector<std::uint16_t> ports_;
  std::atomic<bool> ending_ = false;
  std::vector<std::thread> threads_;
  std::mutex post_mutex_;
  bool ended_ = false;        // guarded by post_mutex_
  mutable std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  Connections connections_;  // in the order they came
  std::unordered_map<std::string, std::size_t> from_sender_;
  std::shared_ptr<TlsContext> tls_;
};

HttpServer::HttpServer(const ServerOptions& options, Handler handler, Log& log)
    : core_(std::make_shared<Core>(options, std::move(handler), log)) {
  core_->listen();
}

void HttpServer::start() { core_->start(); }

HttpServer::~HttpServer() { core_->end(); }

const std::vector<std::uint16_t>& HttpServer::ports() const noexcept { return core_->ports(); }
void HttpServer::reload_tls() { core_->reload_tls(); }
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
