#include "server/model_call.h"

#include <mutex>
#include <utility>

#include "server/request_record.h"

namespace quarrel {
namespace {

using http::Exchange;

class ModelCall : public std::enable_shared_from_this<ModelCall> {
 public:
  ModelCall(Service& service, const std::shared_ptr<Exchange>& exchange, ModelWork work)
      : service_(service), record_(exchange->request().record), exchange_(exchange), work_(std::move(work)) {}
  ~ModelCall() { ticket_.cancel(); }

  void acquire(const OfferedModel& model) {
    record_->update([&](RequestFacts& facts) { facts.model = model.name; });
    ModelRegistry::Ticket ticket = service_.acquire(
        model, weak_from_this(),
        [this](const ModelRegistry::Lease& lease, const std::exception_ptr& error) { acquired(lease, error); },
        {.key = record_->caller()->key});
    const std::scoped_lock lock(mutex_);
    ticket_ = std::move(ticket);
  }

 private:
  void acquired(const ModelRegistry::Lease& model, const std::exception_ptr& error) {
    const ModelWork work = std::exchange(work_, {});  // it has texts, which are not kept until the answer has gone
    if (error != nullptr) return report(load_error(error), error);
    record_->update([](RequestFacts& facts) { facts.acquired = Clock::now(); });
    try {
      http::Response response = work(*model);
      if (const auto exchange = exchange_.lock()) exchange->respond(std::move(response));
    } catch (...) {
      report(api_error(std::current_exception()), std::current_exception());
    }
  }

  // Nobody else answers: who cannot be told why is not left to wait either.
  void report(const ApiError& caught, const std::exception_ptr& error) {
    log_fault(service_.log(), record_->id(), caught, error);
    const auto exchange = exchange_.lock();
    if (exchange == nullptr) return;
    try {
      const ApiError said = service_.draining() ? as_draining(caught) : caught;
      record_->update([&](RequestFacts& facts) { note_error(facts, said); });
      exchange->respond(plain_error(said));
    } catch (const std::exception&) {
      exchange->abandon();
    }
  }

  Service& service_;
  const std::shared_ptr<RequestRecord> record_;
  const std::weak_ptr<Exchange> exchange_;
  ModelWork work_;  // until the model is there, or will not be; of that callback alone
  std::mutex mutex_;
  ModelRegistry::Ticket ticket_;  // guarded
};

}  // namespace

void start_model_call(Service& service, const std::shared_ptr<Exchange>& exchange, const OfferedModel& model,
                      ModelWork work) {
  auto call = std::make_shared<ModelCall>(service, exchange, std::move(work));
  exchange->keep(call);
  exchange->keep(exchange->body_share());  // the answer is as long as the text
  call->acquire(model);
}

}  // namespace quarrel
