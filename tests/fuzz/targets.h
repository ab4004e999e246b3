// What is fuzzed: a function a target, over any bytes. libFuzzer calls it (entry.cpp), and so does the test that
// replays the corpus (fuzz_corpus_test.cpp), with any compiler. An Error thrown by the code under test is a proper
// answer to bad input and is swallowed; any other exception, and a Violation, is a finding. Any thread may call.
#pragma once

#include <cstddef>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

namespace quarrel::fuzz {

using Input = std::span<const std::byte>;

void gguf(Input input);
void safetensors(Input input);
void tokenizer_bpe(Input input);
void tokenizer_spm(Input input);
void tokenizer_wordpiece(Input input);
void tokenizer_unigram(Input input);
void template_compile_render(Input input);
void quant_decode(Input input);
void ssm(Input input);
void request_body(Input input);
void websocket_frames(Input input);
void http_head(Input input);
void http_connection(Input input);
void socket_message(Input input);
void key_file(Input input);
void settings_file(Input input);

// A promise of the code under test that some input broke.
class Violation : public std::logic_error {
  using std::logic_error::logic_error;
};

inline void require(bool holds, const char* promise) {
  if (!holds) throw Violation(promise);
}

inline std::string_view as_text(Input input) { return {reinterpret_cast<const char*>(input.data()), input.size()}; }

}  // namespace quarrel::fuzz
