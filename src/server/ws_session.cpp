#include "server/ws_session.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "server/native_writer.h"

namespace quarrel {
namespace {

// A message of this size is read where it came, by a thread that others wait for; a longer one by a thread for texts.
constexpr std::size_t kSmallMessage = 1024;
// What waits behind a long one.
constexpr std::size_t kMostWaiting = 256;
constexpr std::size_t kMostWaitingBytes = 4 * 1024 * 1024;
// A client that goes on for so long without ever waiting is not worth an answer.
constexpr std::size_t kMostRefused = 10'000;

// Sends an answer's events as messages with its id.
class SocketReceiver final : public AnswerReceiver {
 public:
  SocketReceiver(std::weak_ptr<SocketSession> session, const AnswerPlace& place)
      : session_(std::move(session)), messages_(place.id), serial_(place.serial) {}

  void accepted(const ResumePoint& point) override {
    const auto session = session_.lock();
    if (session == nullptr) return;
    Json status{{"state", "generating"}};
    if (!point.id.empty()) status["resume"] = to_text(point);
    session->send(status_message(messages_.id(), status));
  }

  void waiting(std::size_t ahead) override {
    if (const auto session = session_.lock()) session->send(status_message(messages_.id(), queued_status(ahead)));
  }

  void reading(std::size_t read, std::size_t prompt_tokens) override {
    const auto session = session_.lock();
    if (session == nullptr) return;
    session->send(status_message(messages_.id(), reading_status(read, prompt_tokens)));
  }

  bool take(std::span<const AnswerEvent> events, const ResumePoint& before) override {
    const auto session = session_.lock();
    if (session == nullptr) return false;
    ResumePoint point = before;
    bool sent = true;
    for (const AnswerEvent& event : events) {
      ++point.event;
      std::string text = messages_.message(event, point.id.empty() ? "" : to_text(point));
      if (event.end != nullptr)
        session->finish({.id = messages_.id(), .serial = serial_}, std::move(text));
      else
        sent = sent && session->send(std::move(text));
    }
    return sent;
  }

 private:
  const std::weak_ptr<SocketSession> session_;
  const AnswerMessages messages_;
  const std::uint64_t serial_;
};

// It was charged when it began. What cannot be read as such a place, or has more beside it, is a request like others.
bool takes_up_an_answer(const SocketMessage& message) {
  if (message.type != SocketMessageType::inference || message.payload.size() != 1) return false;
  const auto place = message.payload.find("resume");
  return place != message.payload.end() && place->is_string() &&
         read_resume_point(place->get_ref<const std::string&>());
}

}  // namespace

bool MessageRate::take(Clock::time_point now) noexcept {
  left_ = std::min(most_, left_ + std::chrono::duration<double>(now - at_).count() * per_second_);
  at_ = now;
  if (left_ < 1.0) return false;
  left_ -= 1.0;
  return true;
}

void open_websocket(Service& service, const std::shared_ptr<http::Exchange>& exchange) {
  const http::Request& request = exchange->request();
  if (const http::UpgradeFault fault = http::upgrade_fault(request); fault.status != 0) {
    const ApiError error(fault.status, "invalid_request_error", "", fault.message);
    request.record->update([&](RequestFacts& facts) { note_error(facts, error); });
  }
  const std::vector<std::string> offered = http::offered_protocols(request);
  const bool knows_ours = std::ranges::find(offered, kSocketProtocol) != offered.end();
  exchange->upgrade(std::string(knows_ours ? kSocketProtocol : ""), [&service](const auto& socket) {
    auto session = std::make_shared<SocketSession>(service, socket);
    service.sockets().add(session);
    return session;
  });
}

SocketSession::SocketSession(Service& service, std::shared_ptr<http::WebSocket> socket)
    : service_(service),
      hub_(service.sockets()),
      socket_(std::move(socket)),
      caller_(socket_->request().record->caller()),
      rate_(hub_.options().messages_per_second, Clock::now()) {}

// Small ones at once, unless others wait: then a `stop` is not held up by anybody else's long prompt.
void SocketSession::message(std::string text, std::shared_ptr<void> share) {
  if (!rate_.take(Clock::now())) return refuse(text, "messages come faster than this connection may send them");
  bool waits = false;
  bool fits = true;
  bool begins = false;
  {
    const std::scoped_lock lock(mutex_);
    waits = working_ || text.size() > kSmallMessage;
    fits = !waits || (waiting_.size() < kMostWaiting && waiting_bytes_ + text.size() <= kMostWaitingBytes);
    if (waits && fits) {
      waiting_.push_back({.text = std::move(text), .share = share});
      waiting_bytes_ += waiting_.back().text.size();
      begins = !std::exchange(working_, true);
    }
  }
  if (begins) service_.run_text_work([self = shared_from_this()] { self->work_on_messages(); });
  if (!fits) return refuse(text, "more messages wait on this connection than it may have");
  refused_ = 0;
  if (!waits) work_on(text, share);
}

// Whoever sends too much costs next to nothing: only a small message is read for its id.
void SocketSession::refuse(const std::string& text, const char* why) {
  if (++refused_ > kMostRefused) return socket_->close(http::CloseCode::policy_violation, why);
  std::string id;
  try {
    if (text.size() <= kSmallMessage) id = read_socket_message(text).id;
  } catch (const SocketMessageError& error) {
    id = error.id;
  }
  send(error_message(id_or_new(id), {429, "rate_limit_error", "rate_limit_exceeded", why}));
}

void SocketSession::work_on_messages() {
  for (;;) {
    Waiting next;
    {
      const std::scoped_lock lock(mutex_);
      if (waiting_.empty() || closed_) {
        working_ = false;
        return;
      }
      next = std::move(waiting_.front());
      waiting_.pop_front();
      waiting_bytes_ -= next.text.size();
    }
    try {
      work_on(next.text, next.share);
    } catch (const std::exception& error) {
      // Those that wait are worked on all the same.
      service_.log().try_warn("a message of a WebSocket failed: {}", error.what());
    }
  }
}

// A key may be revoked while its connection is open.
bool SocketSession::may_stay() {
  if (service_.accepts(*caller_)) return true;
  socket_->close(http::CloseCode::policy_violation, "the key is not good any more");
  return false;
}

void SocketSession::work_on(const std::string& text, const std::shared_ptr<void>& share) {
  if (!may_stay()) return;
  std::string id;
  Limits::Kind kind = Limits::Kind::look;
  try {
    const SocketMessage message = read_socket_message(text);
    id = id_or_new(message.id);
    if (takes_up_an_answer(message)) kind = Limits::Kind::passage;
    answer(message, id, share);
  } catch (const SocketMessageError& error) {
    tell_failure(id_or_new(error.id), error, kind);
  } catch (...) {
    tell_failure(id, api_error(std::current_exception()), kind);
  }
}

// What fails while it is read, or has no place, is a request as over HTTP: it counts against its key's limits and has
// its line. While it is caught: the log has what clients are not told.
void SocketSession::tell_failure(const std::string& id, const ApiError& error, Limits::Kind kind) {
  const Limits::Admitted admitted = service_.limits().admit(*caller_, kind);
  const ApiError& said = admitted.refusal ? *admitted.refusal : error;
  const std::shared_ptr<RequestRecord> record = new_record(true, admitted.ticket);
  log_fault(service_.log(), record->id(), said, std::current_exception());
  record->update([&](RequestFacts& facts) { note_error(facts, said); });
  record->end();
  send(error_message(id, said));
}

// Every message has one, so that what comes back can be told from broadcasts.
std::string SocketSession::id_or_new(const std::string& given) {
  if (!given.empty()) return given;
  const std::scoped_lock lock(mutex_);
  std::string id;
  do id = fmt::format("answer-{}", ++made_ids_);
  while (answers_.contains(id));
  return id;
}

void SocketSession::answer(const SocketMessage& message, const std::string& id, const std::shared_ptr<void>& share) {
  switch (message.type) {
    case SocketMessageType::ping: send(status_message(id, {{"connected", true}})); break;
    case SocketMessageType::status: send_status(id); break;
    case SocketMessageType::stop: stop(message.id, id); break;
    case SocketMessageType::inference: begin(id, read_native_request(message.payload), share); break;
  }
}

void SocketSession::send_status(const std::string& id) {
  Json status = hub_.status(*caller_);
  Json running = Json::array();
  {
    const std::scoped_lock lock(mutex_);
    for (const auto& [each, answer] : answers_) running.push_back({{"id", each}, {"model", answer.model}});
  }
  status["running"] = std::move(running);
  send(status_message(id, status));
}

// `wanted`: the answer that is to end; empty: all of them.
void SocketSession::stop(const std::string& wanted, const std::string& id) {
  std::vector<std::string> stopped;
  std::vector<std::function<void()>> cancels;
  {
    const std::scoped_lock lock(mutex_);
    for (auto& [each, answer] : answers_) {
      if (!wanted.empty() && each != wanted) continue;
      *answer.work.stopped = true;
      stopped.push_back(each);
      if (answer.work.cancel) cancels.push_back(answer.work.cancel);
    }
  }
  send(status_message(id, {{"state", "stopping"}, {"stopped", stopped}}));
  for (const auto& cancel : cancels) cancel();
}

// Where a new answer runs.
AnswerPlace SocketSession::add_answer(const std::string& id, const std::string& model) {
  const std::scoped_lock lock(mutex_);
  // Its message was still being read; nobody would end the answer, and nobody hears this.
  if (closed_) throw ApiError(503, "unavailable_error", "connection_lost", "the connection is closed");
  if (answers_.contains(id)) throw invalid_field("id", "an answer with this 'id' runs on this connection");
  if (answers_.size() >= hub_.options().running) {
    throw ApiError(503, "unavailable_error", "queue_full",
                   fmt::format("{} answers run on this connection, and no more may", hub_.options().running));
  }
  AnswerPlace place{.id = id, .serial = ++made_answers_};
  answers_.emplace(place.id, Answer{.serial = place.serial, .model = model});
  return place;
}

std::map<std::string, SocketSession::Answer>::iterator SocketSession::find(const AnswerPlace& place) {
  const auto found = answers_.find(place.id);
  return found != answers_.end() && found->second.serial == place.serial ? found : answers_.end();
}

// What came of a beginning that took its time: the answer may have ended, been stopped or lost its connection since.
void SocketSession::set_work(const AnswerPlace& place, Work work) {
  std::function<void()> late;
  {
    const std::scoped_lock lock(mutex_);
    const auto found = find(place);
    if (found == answers_.end()) {
      if (closed_) late = work.connection_lost;
    } else {
      const std::shared_ptr<std::atomic<bool>> stopped = found->second.work.stopped;
      if (work.stopped == nullptr) work.stopped = stopped;
      if (*stopped) {
        *work.stopped = true;
        late = work.cancel;
      }
      found->second.work = std::move(work);
    }
  }
  if (late) late();
}

// Who hears of the end may use the id again at once.
void SocketSession::finish(const AnswerPlace& place, std::string last_message) {
  std::map<std::string, Answer>::node_type ended;  // its work ends without the lock
  bool last = false;
  {
    const std::scoped_lock lock(mutex_);
    if (const auto found = find(place); found != answers_.end()) ended = answers_.extract(found);
    last = draining_ && answers_.empty();
  }
  if (!last_message.empty()) send(std::move(last_message));
  if (last) socket_->close(http::CloseCode::going_away, "the server is about to end");
}

void SocketSession::begin(const std::string& id, NativeRequest request, const std::shared_ptr<void>& share) {
  if (!service_.ready()) throw ApiError(503, "unavailable_error", "draining", "the server is about to end");
  const AnswerPlace place = add_answer(id, request.model);
  std::shared_ptr<SocketReceiver> receiver;
  std::shared_ptr<ResumableAnswer> resumable;
  try {
    receiver = std::make_shared<SocketReceiver>(weak_from_this(), place);
    if (request.reattach) return take_up(place, *request.reattach, receiver);
    Json status{{"state", "loading"}};
    if (request.resume) {
      resumable = hub_.answers().create(caller_, receiver);
      status["resume"] = to_text({.id = resumable->id()});
      set_work(place, work_of(resumable, receiver));
    }
    send(status_message(place.id, status));
    Asked asked{.request = std::move(request), .share = share};
    service_.run_text_work([self = shared_from_this(), place, asked = std::move(asked), resumable, receiver] {
      self->ask(place, asked, resumable, receiver);
    });
  } catch (...) {
    if (resumable != nullptr) resumable->never_began(receiver.get(), std::current_exception());
    finish(place, {});
    throw;
  }
}

SocketSession::Work SocketSession::work_of(const std::shared_ptr<ResumableAnswer>& answer,
                                           const std::shared_ptr<AnswerReceiver>& receiver) {
  return {
      .stopped = answer->stopped(),
      .cancel = [answer] { answer->cancel(); },
      // It goes on, and may be in the middle of handing over events.
      .connection_lost = [&service = service_, answer,
                          receiver] { service.run_text_work([answer, receiver] { answer->detach(receiver.get()); }); }};
}

void SocketSession::take_up(const AnswerPlace& place, const ResumePoint& point,
                            const std::shared_ptr<AnswerReceiver>& receiver) {
  ResumableAnswers::Attached attached;
  try {
    attached = hub_.answers().attach(point, caller_->key, receiver);
  } catch (const ApiError&) {
    service_.limits().charge_vain_passage(*caller_);
    throw;
  }
  if (attached.left == Remainder::some) return set_work(place, work_of(attached.answer, receiver));
  finish(place, status_message(place.id, {{"state", "complete"}}));
}

// On a thread for texts: a model is looked for, perhaps on a disk.
void SocketSession::ask(const AnswerPlace& place, const Asked& asked, const std::shared_ptr<ResumableAnswer>& resumable,
                        const std::shared_ptr<AnswerReceiver>& receiver) {
  std::shared_ptr<RequestRecord> record;
  std::shared_ptr<AnswerReceiver> target = receiver;
  try {
    if (resumable != nullptr) target = std::make_shared<ResumableReceiver>(resumable);
    const Limits::Admitted admitted = service_.limits().admit(*caller_, Limits::Kind::work);
    record = new_record(asked.request.stream.value_or(true), admitted.ticket);
    if (admitted.refusal) throw *admitted.refusal;
    start(place, asked, resumable, target, record);
  } catch (...) {
    const ApiError error = api_error(std::current_exception());
    if (record != nullptr) {
      log_fault(service_.log(), record->id(), error, std::current_exception());
      record->update([&](RequestFacts& facts) { note_error(facts, error); });
    }
    const AnswerEvent event = failure_event(error);
    target->take(std::span(&event, 1), {});
  }
}

void SocketSession::start(const AnswerPlace& place, const Asked& asked,
                          const std::shared_ptr<ResumableAnswer>& resumable,
                          const std::shared_ptr<AnswerReceiver>& target, const std::shared_ptr<RequestRecord>& record) {
  const NativeRequest& request = asked.request;
  const bool stream = request.stream.value_or(true);
  EventWriter::Options options{.stream = stream, .progress = request.progress};
  {
    const std::scoped_lock lock(mutex_);
    const auto found = find(place);
    if (found == answers_.end() && resumable == nullptr) return;  // the connection is gone
    options.stopped = resumable != nullptr ? resumable->stopped() : found->second.work.stopped;
  }
  const OfferedModel model = service_.find(request.model, *caller_);
  options.held = hub_.take_place(model.name);
  if (options.held == nullptr) {
    throw ApiError(503, "unavailable_error", "queue_full", "too many answers of this model run on WebSockets");
  }
  const std::shared_ptr<Retrieval> retrieval = retrieval_for(service_, request, *caller_);
  options.retrieval = retrieval;
  auto writer = std::make_unique<EventWriter>(target, std::move(options));
  const std::shared_ptr<GenerationCall> call = start_generation(
      service_, record, model, with_share(asked.share, make_native_ask(request, Priority::interactive, retrieval)),
      std::move(writer), native_call_options(request, retrieval));
  const auto cancel = [call] { call->cancel(); };
  if (resumable != nullptr) {
    resumable->set_cancel(cancel);
  } else {
    set_work(place, {.cancel = cancel, .connection_lost = cancel});
  }
}

std::shared_ptr<RequestRecord> SocketSession::new_record(bool stream, std::shared_ptr<LimitTicket> ticket) {
  std::uint64_t number = 0;
  {
    const std::scoped_lock lock(mutex_);
    number = ++made_records_;
  }
  const http::Request& request = socket_->request();
  return service_.new_record({.id = fmt::format("{}-{}", request.id, number),
                              .route = "WS /ws",
                              .traceparent = std::string(request.header("traceparent")),
                              .address = request.address,
                              .caller = caller_,
                              .ticket = std::move(ticket),
                              .stream = stream,
                              .status = 200});
}

void SocketSession::closed() {
  std::map<std::string, Answer> answers;
  {
    const std::scoped_lock lock(mutex_);
    closed_ = true;
    answers.swap(answers_);
    waiting_.clear();
    waiting_bytes_ = 0;
  }
  hub_.remove(this);
  for (const auto& [id, answer] : answers) {
    if (answer.work.connection_lost) answer.work.connection_lost();
  }
}

bool SocketSession::drain() {
  const std::scoped_lock lock(mutex_);
  draining_ = true;
  return !answers_.empty();
}

void SocketSession::broadcast(const std::string& status, const std::string& metrics) {
  bool is_news = false;
  {
    const std::scoped_lock lock(mutex_);
    is_news = last_status_ != status;
    if (is_news) last_status_ = status;
  }
  if (is_news) socket_->broadcast(status);
  socket_->broadcast(metrics);
}

}  // namespace quarrel
