// Requests that need a model for a moment: nobody is left to wait, whatever fails.
#include "server/model_call.h"

#include <gtest/gtest.h>

#include <atomic>
#include <new>

#include "server/served_toy.h"

namespace quarrel {
namespace {

class ModelCallTest : public test::ServedToy {
 protected:
  // Its connection cannot be woken the first so many times.
  std::shared_ptr<http::Exchange> deaf(int times) {
    return std::make_shared<http::Exchange>(http::Request{.record = service_->new_record({.route = "POST /test"})},
                                            std::size_t{1} << 20, [this, times] {
                                              if (++calls_ <= times) throw std::bad_alloc();
                                            });
  }
  unsigned status_of(const std::shared_ptr<http::Exchange>& exchange, ModelWork work) {
    start_model_call(*service_, exchange, service_->find("", {}), std::move(work));
    service_->registry().acquire_and_wait(service_->find("", {}).name);
    finish_text_work();
    return exchange->take().head.status;
  }

  std::atomic<int> calls_ = 0;
};

TEST_F(ModelCallTest, AConnectionThatCouldNotBeWokenIsWokenForTheError) {
  EXPECT_EQ(status_of(deaf(1), [](const LoadedModel&) { return http::Response{.status = 201}; }), 201u);
  EXPECT_EQ(calls_, 2);
}

TEST_F(ModelCallTest, OneThatCannotBeToldTheErrorIsToldThatThereIsAnEnd) {
  EXPECT_EQ(status_of(deaf(1), [](const LoadedModel&) -> http::Response { throw invalid_field("a", "wrong"); }), 400u);
  EXPECT_EQ(calls_, 2);
}

}  // namespace
}  // namespace quarrel
