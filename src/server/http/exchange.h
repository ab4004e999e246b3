// One request and its answer on the way between a connection and a handler. The connection owns it and, with it, what
// the handler hung on it (`keep`): when the answer is out, or the client is gone, all of that ends.
//
// Threads: the handler's side may be called from any thread; the connection's side from its own strand.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "server/http/backlog.h"
#include "server/http/message.h"
#include "server/http/websocket.h"

namespace quarrel::http {

class Exchange {
 public:
  // `wake` tells the connection that there is something to send; it may be called from any thread.
  Exchange(Request request, std::size_t most_buffered, std::function<void()> wake);
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  // ---- The handler's side ----

  const Request& request() const noexcept { return request_; }

  // The whole answer. What comes after an answer or the beginning of one is dropped.
  void respond(Response response);
  // An answer in pieces: its head, without a body.
  void begin(Response head);
  // False: nobody reads any more. The client is gone, or so slow that what waits for it has outgrown its buffer.
  bool write(std::string_view piece);
  void finish();
  // There will be no answer, or not the rest of it: the connection ends, so that nobody takes a part for the whole.
  void abandon();
  // The request becomes a WebSocket, with this one of the protocols that its client offers (empty: with none). A
  // request that cannot is answered so (`upgrade_fault`), and `make_handler` is not called.
  void upgrade(std::string protocol, MakeWebSocketHandler make_handler);

  // Called once when the client is gone before the answer was finished, at once if it is already; on any thread.
  void on_closed(std::function<void()> callback);
  // Lives as long as the exchange.
  void keep(std::shared_ptr<void> work);
  // The body's share of the room that all bodies have: whoever keeps what the body says keeps this as long. Null: it
  // has none, or had.
  std::shared_ptr<void> body_share() const;
  // The request's body has been read and is not needed any more, nor is its share, unless somebody keeps that. By
  // whoever reads it, or when nobody does any more.
  void release_body();

  bool begun() const;

  // Called with the answer's head before it goes out, to look at it or to add headers; it must not call the exchange.
  // Before there is an answer.
  void on_head(std::function<void(Response& head)> callback);

  // ---- The connection's side ----

  struct Output {
    bool has_head = false;
    Response head = {};
    bool whole = false;  // the head's body is the answer
    std::string pieces = {};
    bool finished = false;
    bool broken = false;                // the reader was too slow, or the answer was abandoned
    MakeWebSocketHandler upgrade = {};  // set: there is no answer but a WebSocket
    std::string protocol = {};
  };
  // Held until the body is let go of, or by whoever keeps it longer.
  void keep_with_body(std::shared_ptr<void> share);
  // What is to be sent now.
  Output take();
  // The client is gone.
  void close();

 private:
  enum class State { waiting, streaming, finished, closed };

  Request request_;
  const std::function<void()> wake_;

  mutable std::mutex mutex_;  // guards all below
  State state_ = State::waiting;
  bool has_head_ = false;
  bool whole_ = false;
  bool broken_ = false;
  Response head_;
  std::string pieces_;
  Backlog backlog_;
  MakeWebSocketHandler upgrade_;
  std::string protocol_;
  bool woken_ = false;    // and nothing was taken since
  bool unheard_ = false;  // it was broken off, and the connection could not be told yet
  std::vector<std::function<void(Response&)>> on_head_;
  std::vector<std::function<void()>> on_closed_;
  std::vector<std::shared_ptr<void>> kept_;
  std::shared_ptr<void> kept_with_body_;

  void set_head(Response head);
  void wake(std::unique_lock<std::mutex>& lock);
  void close(std::unique_lock<std::mutex>& lock);
  void break_off(std::unique_lock<std::mutex>& lock);
};

}  // namespace quarrel::http
