// What the functions of the C interface have in common: handles that know their kind, structs of any size, exceptions
// that become a status. Only src/api/c_*.cpp include it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/errors.h"
#include "quarrel/quarrel.h"
#include "quarrel/quarrel_c.h"

// A handle begins with a word of its kind, so that a wrong one is reported instead of believed.
struct quarrel_model {
  static constexpr std::uint64_t kKind = 0x716d6f64656c0001;
  std::uint64_t kind = kKind;
  quarrel::api::Model model;
  // What is given out as long as the handle lives.
  std::vector<std::string> metadata_keys = {};
  quarrel::api::SpecialTokens special = {};
  quarrel::api::GenerateOptions recommended = {};
  std::vector<quarrel_text> recommended_stops = {};
};

struct quarrel_cancel {
  static constexpr std::uint64_t kKind = 0x7163616e63656c01;
  std::uint64_t kind = kKind;
  quarrel::api::CancelToken token;
};

struct quarrel_result {
  static constexpr std::uint64_t kKind = 0x71726573756c7401;
  struct Answer {
    quarrel::api::GenerateResult result = {};
    std::vector<std::vector<quarrel_logprob>> top = {};  // of each token
    std::vector<quarrel_logprob> prompt_logprobs = {};
    std::vector<std::vector<quarrel_logprob>> prompt_top = {};
  };
  std::uint64_t kind = kKind;
  std::vector<Answer> answers;  // at least one
};

struct quarrel_generation {
  static constexpr std::uint64_t kKind = 0x7167656e65726101;
  std::uint64_t kind = kKind;
  quarrel::api::Generation generation = {};
  quarrel::api::Event event = {};  // the one that was read last
  std::vector<quarrel_logprob> top = {};
};

struct quarrel_embeddings {
  static constexpr std::uint64_t kKind = 0x71656d6265640001;
  struct Text {
    std::vector<float> values = {};
    std::size_t width = 0;
    std::size_t vectors = 0;
    std::size_t tokens = 0;
    std::size_t full_tokens = 0;
    bool cut = false;
  };
  std::uint64_t kind = kKind;
  std::vector<Text> texts;
};

namespace quarrel::api {

inline constexpr std::uint32_t kLargestStruct = 1u << 16;  // beyond any that will be: the size was never set

// Thrown where the caller's array is too small: its count has been reported already.
struct TooSmall {
  std::size_t needed = 0;
  std::size_t capacity = 0;
};

// Thrown for a status that is no error of the C++ interface.
struct OtherStatus {
  quarrel_status status = QUARREL_OK;
  const char* message = "";
};

// Writes into the caller's struct, as far as that reaches. Never throws.
void report(quarrel_error* error, quarrel_status status, std::string_view message) noexcept;
// The status of the exception in flight, reported to `error`.
quarrel_status status_of_exception(quarrel_error* error) noexcept;

// Runs a function's body; whatever it throws becomes a status.
template <typename Body>
quarrel_status run(quarrel_error* error, Body&& body) noexcept {
  try {
    std::forward<Body>(body)();
    report(error, QUARREL_OK, {});
    return QUARREL_OK;
  } catch (...) {
    return status_of_exception(error);
  }
}

template <typename Handle>
Handle& check_handle(Handle* handle, const char* what) {
  if (handle == nullptr) refuse(ErrorKind::usage, "the {} is null", what);
  std::uint64_t kind = 0;
  std::memcpy(&kind, static_cast<const void*>(handle), sizeof kind);
  if (kind != std::remove_const_t<Handle>::kKind) refuse(ErrorKind::usage, "the {} is a handle of another kind", what);
  return *handle;
}

// Clears the kind, so that a second free of memory that is still mapped is more likely told apart. Null is fine, a
// handle of another kind is left alone.
template <typename Handle>
void free_handle(Handle* handle) noexcept {
  if (handle == nullptr || handle->kind != Handle::kKind) return;
  handle->kind = 0;
  delete handle;
}

template <typename T>
T& check_pointer(T* pointer, const char* what) {
  if (pointer == nullptr) refuse(ErrorKind::usage, "{} is null", what);
  return *pointer;
}

template <typename T>
std::span<const T> check_array(const T* data, std::size_t count, const char* what) {
  if (data == nullptr && count > 0) refuse(ErrorKind::usage, "{} is null, but has {} entries", what, count);
  if (count > PTRDIFF_MAX / sizeof(T))
    refuse(ErrorKind::usage, "{} has {} entries, more than memory holds", what, count);
  return {data, count};
}

inline std::string_view view_of(const quarrel_text& text, const char* what) {
  const auto bytes = check_array(text.data, text.bytes, what);
  return {bytes.data(), bytes.size()};
}

inline quarrel_text text_of(std::string_view text) noexcept { return {.data = text.data(), .bytes = text.size()}; }

// A struct of the caller's, who may know fewer fields than we do (the others keep their defaults) or more (which then
// must be zero).
template <typename Struct>
Struct read_struct(const Struct* from, const Struct& defaults, const char* what) {
  Struct result = defaults;
  if (from == nullptr) return result;
  std::uint32_t size = 0;
  std::memcpy(&size, static_cast<const void*>(from), sizeof size);
  if (size < sizeof size) refuse(ErrorKind::usage, "the size of {} is not set: use its _init function", what);
  if (size > kLargestStruct) refuse(ErrorKind::usage, "the size of {} is {} bytes, which cannot be", what, size);
  const auto* bytes = reinterpret_cast<const unsigned char*>(from);
  const std::size_t known = std::min<std::size_t>(size, sizeof(Struct));
  std::memcpy(static_cast<void*>(&result), bytes, known);
  if (std::any_of(bytes + known, bytes + size, [](unsigned char byte) { return byte != 0; })) {
    refuse(ErrorKind::unsupported, "{} sets a field that this version of the library does not know", what);
  }
  return result;
}

// The size of a struct of the caller's that is to be written.
template <typename Struct>
std::uint32_t check_size(const Struct* to, const char* what) {
  check_pointer(to, what);
  std::uint32_t size = 0;
  std::memcpy(&size, static_cast<const void*>(to), sizeof size);
  if (size < sizeof size || size > kLargestStruct) refuse(ErrorKind::usage, "the size of {} is not set", what);
  return size;
}

// Into a struct of the caller's, whose size says how many fields it has. What we do not know becomes zero.
template <typename Struct>
void write_struct(Struct* to, Struct from, const char* what) {
  const std::uint32_t size = check_size(to, what);
  from.size = size;
  std::memset(static_cast<void*>(to), 0, size);
  std::memcpy(static_cast<void*>(to), &from, std::min<std::size_t>(size, sizeof(Struct)));
}

// Into an array of the caller's.
template <typename T, typename Values>
void write_array(const Values& values, T* data, std::size_t capacity, std::size_t& count) {
  count = values.size();
  if (count > capacity) throw TooSmall{.needed = count, .capacity = capacity};
  if (count == 0) return;
  std::copy(values.begin(), values.end(), &check_pointer(data, "the array"));
}

// The whole of a function that hands out a list in the caller's array: `make` gives the list of a model.
template <typename T, typename Make>
quarrel_status give_array(const quarrel_model* model, T* data, std::size_t capacity, std::size_t* count,
                          quarrel_error* error, const Make& make) noexcept {
  return run(error, [&] {
    std::size_t& needed = check_pointer(count, "the place for the count");
    needed = 0;
    write_array(make(check_handle(model, "model").model), data, capacity, needed);
  });
}

// c_options.cpp
LoadOptions load_options_of(const quarrel_load_options* options);
GenerateOptions generate_options_of(const quarrel_generate_options* options);
EmbedOptions embed_options_of(const quarrel_embed_options* options);
Chat chat_of(const quarrel_chat_input* chat);
Prompt prompt_of(const quarrel_prompt* prompt);
std::vector<Message> messages_of(const quarrel_message* messages, std::size_t count);
quarrel_generate_options c_options_of(const GenerateOptions& options);  // less what needs arrays

// c_generate.cpp
std::vector<quarrel_logprob> logprobs_of(std::span<const TokenLogprob> logprobs);
std::unique_ptr<quarrel_result> result_of(std::vector<GenerateResult> answers);

// A struct with its defaults, in as many bytes as the caller has for it.
template <typename Struct>
quarrel_status init_struct(Struct* options, std::size_t size, const Struct& defaults) noexcept {
  return run(nullptr, [&] {
    check_pointer(options, "the struct");
    if (size < sizeof defaults.size || size > kLargestStruct) {
      refuse(ErrorKind::usage, "the size of the struct cannot be {}", size);
    }
    const auto bytes = static_cast<std::uint32_t>(size);
    std::memcpy(static_cast<void*>(options), &bytes, sizeof bytes);
    write_struct(options, defaults, "the struct");
  });
}

}  // namespace quarrel::api
