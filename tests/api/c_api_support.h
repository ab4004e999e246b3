// What the tests of the C interface share: the toy of api_support.h, loaded a second time through it.
#pragma once

#include "api/api_support.h"
#include "quarrel/quarrel_c.h"

namespace quarrel::test {

// A struct that says how large its caller takes it to be.
template <typename Struct>
Struct sized(std::uint32_t size = sizeof(Struct)) {
  Struct result{};
  result.size = size;
  return result;
}

class CApiTest : public ApiTest {
 protected:
  void SetUp() override {
    quarrel_load_options options;
    ASSERT_EQ(quarrel_load_options_init(&options, sizeof options), QUARREL_OK);
    options.threads = 2;
    options.sequences = 2;
    ASSERT_EQ(quarrel_model_load(quarrel_text_of(file_.c_str()), &options, &handle_, &error_), QUARREL_OK)
        << error_.message;
  }
  void TearDown() override { quarrel_model_free(handle_); }

  static quarrel_generate_options unending_c(std::int32_t max_tokens) {
    quarrel_generate_options options;
    quarrel_generate_options_init(&options, sizeof options);
    options.max_tokens = max_tokens;
    options.has_stop_tokens = 1;
    options.has_seed = 1;
    options.seed = 1;
    return options;
  }

  quarrel_model* handle_ = nullptr;
  quarrel_error error_ = QUARREL_ERROR_INIT;
};

}  // namespace quarrel::test
