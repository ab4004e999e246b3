// One WebSocket: reads its messages, runs its answers, each under its id, and keeps it within its limits. Messages are
// worked on in the order in which they come, one at a time; answers run side by side.
//
// Threads: `message`, `closed` and `drain` on the connection's strand, the rest from any. Its lock is never held while
// something else of the server is called.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "base/clock.h"
#include "server/http/exchange.h"
#include "server/http/websocket.h"
#include "server/native_request.h"
#include "server/service.h"
#include "server/ws_hub.h"
#include "server/ws_protocol.h"

namespace quarrel {

// The handler of GET /ws.
void open_websocket(Service& service, const std::shared_ptr<http::Exchange>& exchange);

// So many messages a second, with those of two in store.
class MessageRate {
 public:
  MessageRate(double per_second, Clock::time_point now) noexcept
      : per_second_(per_second), most_(std::max(1.0, 2.0 * per_second)), left_(most_), at_(now) {}
  // One more; false: it comes too soon.
  bool take(Clock::time_point now) noexcept;

 private:
  double per_second_, most_, left_;
  Clock::time_point at_;
};

// One answer on a connection. Its id may be another's once it has ended; its serial never is.
struct AnswerPlace {
  std::string id = {};
  std::uint64_t serial = 0;
};

class SocketSession final : public http::WebSocketHandler, public std::enable_shared_from_this<SocketSession> {
 public:
  SocketSession(Service& service, std::shared_ptr<http::WebSocket> socket);

  void message(std::string text, std::shared_ptr<void> share) override;
  void closed() override;
  bool drain() override;

  const std::shared_ptr<const Caller>& caller() const noexcept { return caller_; }
  // False: its key has been revoked since it opened the connection, which is closed now.
  bool may_stay();
  // The status is sent where it is another than the last.
  void broadcast(const std::string& status, const std::string& metrics);

  // ---- For the receivers of its answers ----
  bool send(std::string text) { return socket_->send(std::move(text)); }
  void finish(const AnswerPlace& place, std::string last_message);

 private:
  // How an answer's work is ended.
  struct Work {
    std::shared_ptr<std::atomic<bool>> stopped = {};  // set before `cancel`: its end is wanted, and no failure
    // Both wait for nobody.
    std::function<void()> cancel = {};  // empty: it has not begun
    std::function<void()> connection_lost = {};
  };
  struct Answer {
    std::uint64_t serial = 0;
    std::string model = {};  // as it was asked for
    Work work = {.stopped = std::make_shared<std::atomic<bool>>(false)};
  };

  // A message, and what it holds among the bodies of all requests.
  struct Waiting {
    std::string text = {};
    std::shared_ptr<void> share = {};
  };
  // The same of a question that was read from one.
  struct Asked {
    NativeRequest request = {};
    std::shared_ptr<void> share = {};
  };

  void work_on_messages();
  void work_on(const std::string& text, const std::shared_ptr<void>& share);
  void refuse(const std::string& text, const char* why);
  void tell_failure(const std::string& id, const ApiError& error, Limits::Kind kind);
  void answer(const SocketMessage& message, const std::string& id, const std::shared_ptr<void>& share);
  std::string id_or_new(const std::string& given);
  void send_status(const std::string& id);
  void stop(const std::string& wanted, const std::string& id);
  void begin(const std::string& id, NativeRequest request, const std::shared_ptr<void>& share);
  void take_up(const AnswerPlace& place, const ResumePoint& point, const std::shared_ptr<AnswerReceiver>& receiver);
  void ask(const AnswerPlace& place, const Asked& asked, const std::shared_ptr<ResumableAnswer>& resumable,
           const std::shared_ptr<AnswerReceiver>& receiver);
  void start(const AnswerPlace& place, const Asked& asked, const std::shared_ptr<ResumableAnswer>& resumable,
             const std::shared_ptr<AnswerReceiver>& target, const std::shared_ptr<RequestRecord>& record);
  AnswerPlace add_answer(const std::string& id, const std::string& model);
  void set_work(const AnswerPlace& place, Work work);
  // Of the mutex's owner: the answer that runs there; end: it has ended, whoever has its id now.
  std::map<std::string, Answer>::iterator find(const AnswerPlace& place);
  Work work_of(const std::shared_ptr<ResumableAnswer>& answer, const std::shared_ptr<AnswerReceiver>& receiver);
  std::shared_ptr<RequestRecord> new_record(bool stream, std::shared_ptr<LimitTicket> ticket);

  Service& service_;
  SocketHub& hub_;
  const std::shared_ptr<http::WebSocket> socket_;
  const std::shared_ptr<const Caller> caller_;
  MessageRate rate_;         // the strand's
  std::size_t refused_ = 0;  // in a row; the strand's

  std::mutex mutex_;  // guards all below
  std::deque<Waiting> waiting_;
  std::size_t waiting_bytes_ = 0;
  bool working_ = false;
  bool closed_ = false;
  bool draining_ = false;
  std::uint64_t made_ids_ = 0, made_records_ = 0, made_answers_ = 0;
  std::map<std::string, Answer> answers_;  // that run, by id
  std::string last_status_;
};

}  // namespace quarrel
