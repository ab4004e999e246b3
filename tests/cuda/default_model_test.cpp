// The real default model on the GPU against answers that were recorded in exact arithmetic. Skipped, with the reason
// printed, where there is no GPU or the model has not been pulled.
#include "support/default_model.h"

#include "backend/cuda_loader.h"
#include "models/recorded_answers.h"

namespace quarrel::test {
namespace {

class CudaDefaultModel : public DefaultModelTest {
 protected:
  void SetUp() override {
    DefaultModelTest::SetUp();
    if (IsSkipped()) return;
    try {
      cuda_.device = open_cuda_device(0);
    } catch (const Error& error) {
      GTEST_SKIP() << "no GPU to test on: " << error.what();
    }
  }
  NamedDevice cuda_{.name = "cuda", .exact = false, .device = {}};
};

TEST_F(CudaDefaultModel, FollowsTheRecordedAnswers) {
  for (const std::int32_t chunk : {0, 16, 1}) {
    SCOPED_TRACE(testing::Message() << "answers in steps of " << chunk);
    expect_recorded_answers(path_, cuda_, chunk);
  }
}

}  // namespace
}  // namespace quarrel::test
