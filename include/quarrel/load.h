// What a model is loaded with, and what can be known of it: before (a memory estimate), at once (info, special tokens,
// metadata), and while it works (metrics). Include quarrel.h.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "quarrel/common.h"

namespace quarrel::api {

class Model;

// How keys and values are kept.
enum class KvType { f32, f16 };

// The form of activations that are multiplied with quantised weights.
enum class Activations {
  automatic,   // prompts: int8, with the residual as a second one in groups with outliers; answers: always with it
  int8_split,  // always with the residual: near exact
  int8,        // prompts: int8 alone, which is coarser
  f32,         // as they are; a GPU refuses it
  f16,         // rounded to 16 bits; on a GPU alone, elsewhere int8_split is used instead
};

struct LoadOptions {
  // "cpu"; "reference": slow, and the definition of every number; "cuda", with its module beside the program or the
  // library; "auto": that, if there is a GPU and the model fits there, else the CPU.
  std::string device = "cpu";
  std::int32_t threads = 0;       // 0: one a core that the process may use
  bool pin = false;               // each thread to a core of its own
  const Model* beside = nullptr;  // shares this model's device and so its threads: for several models in one process

  std::int32_t context = 0;         // tokens of a prompt and its answer; 0: what the model was made for, or what fits
  std::int32_t sequences = 4;       // answers computed at once; more calls than that wait their turn
  std::int64_t cache_tokens = 0;    // that the KV cache holds of all of them together; 0: every context in full
  std::int32_t batch_rows = 512;    // tokens a step at most
  std::optional<KvType> kv_type{};  // none: the device's default
  Activations activations = Activations::automatic;
  bool repack = true;                            // weights in the machine's own layout; false: as they lie in the file
  std::uint64_t memory = 0;                      // bytes to stay within; 0: what the machine has
  std::optional<std::uint64_t> expert_memory{};  // bytes for experts, which are then read as they are chosen
  std::optional<Pooling> pooling{};              // of texts that become vectors; none: what the file says
  bool prefix_cache = true;                      // prompts that begin alike are computed once
  std::int32_t queue_limit = 1024;               // calls that wait; more are refused with Error(busy)
  std::int64_t queue_token_limit = 1LL << 22;    // tokens of theirs
  std::int32_t key_queue_limit = 0;              // calls of one key (GenerateOptions::key) that wait; 0: no limit
  std::int64_t key_queue_token_limit = 0;        // the same in tokens
  bool warm_up = false;                          // a small request is answered before `load` returns

  std::string chat_template{};  // the text of a Jinja template instead of the model's own
  std::string template_name{};  // or the name of a built-in one; "none": conversations are refused

  // How far loading is, in bytes; false ends it with Error(cancelled).
  std::function<bool(std::uint64_t done, std::uint64_t total)> progress{};
  // What is odd but no reason to refuse anything: called while loading by the thread that loads, and as long as the
  // model lives by any thread, perhaps by several at once. What it throws ends the load; afterwards it is ignored.
  std::function<void(std::string_view line)> warning{};
};

// What a load would take, in bytes.
struct MemoryEstimate {
  std::uint64_t total = 0;
  std::uint64_t mapped = 0;     // of it, the file's own pages, which the system may take back and read again
  std::uint64_t weights = 0;    // repacked or decoded
  std::uint64_t experts = 0;    // the cache for experts, where there is one
  std::uint64_t kv = 0;         // keys and values
  std::uint64_t state = 0;      // of recurrent layers
  std::uint64_t workspace = 0;  // activations and scratch
  std::uint64_t available = 0;  // what the device has now; 0: nobody knows
  std::int32_t context = 0;     // that a load would have
  std::int32_t trained_context = 0;
  std::int32_t sequences = 0;
};

struct ModelInfo {
  std::string name{};
  std::string path{};
  std::string architecture{};
  std::string device{};         // in words
  std::string template_from{};  // where the chat template comes from, in words; empty: there is none
  std::int32_t context = 0;     // tokens of a prompt and its answer
  std::int32_t trained_context = 0;
  std::int32_t vocabulary = 0;
  std::int32_t embedding_width = 0;  // of each vector that `embed` gives, where it is asked for nothing else
  std::int32_t most_answers = 0;     // of one call
  Pooling pooling = Pooling::none;   // how a text becomes a vector, where it is asked for nothing else
  bool generates = false;
  bool embeds = false;
  bool ranks = false;  // gives scores instead of vectors
  double load_seconds = 0.0;
};

// Ids of tokens with a meaning; kNoToken: the vocabulary has none.
struct SpecialTokens {
  Token bos = kNoToken;
  Token eos = kNoToken;
  Token eot = kNoToken;
  Token unknown = kNoToken;
  Token separator = kNoToken;
  Token padding = kNoToken;
  Token cls = kNoToken;
  Token mask = kNoToken;
  bool add_bos = false;                    // prompts begin with BOS
  bool add_eos = false;                    // texts end with EOS
  std::vector<Token> end_of_generation{};  // each ends an answer, unless other stop tokens are asked for
};

// A value of the file's: integers, floating-point numbers, texts, and lists of them.
using MetadataValue = std::variant<bool, std::int64_t, std::uint64_t, double, std::string, std::vector<std::int64_t>,
                                   std::vector<double>, std::vector<std::string>>;

// Counted since the model was loaded, unless it says "now".
struct Metrics {
  std::uint64_t accepted = 0;  // requests: answers to a prompt, or a text to embed
  std::uint64_t finished = 0;
  std::uint64_t refused = 0;
  std::int32_t running = 0;    // now
  std::int32_t waiting = 0;    // now: never ran yet
  std::int32_t returning = 0;  // now: preempted, waiting to go on
  std::int64_t waiting_tokens = 0;
  std::uint64_t steps = 0;
  std::uint64_t failed_steps = 0;
  std::uint64_t prompt_rows = 0;     // tokens of prompts that were computed
  std::uint64_t generated_rows = 0;  // tokens of answers that were
  std::uint64_t tokens = 0;          // that were sampled
  std::uint64_t preemptions = 0;
  std::uint64_t shifts = 0;
  std::uint64_t cache_hit_tokens = 0;  // of prompts, in the prefix cache
  std::uint64_t cache_miss_tokens = 0;
  std::int64_t blocks_total = 0;   // of the KV cache
  std::int64_t blocks_used = 0;    // now: held by what runs
  std::int64_t blocks_cached = 0;  // now: held by the prefix cache alone
  std::uint64_t divergences = 0;   // rows whose numbers were not finite
  std::uint64_t kv_saturated = 0;  // values clamped on their way into an F16 cache
  std::uint64_t expert_hits = 0;   // of the expert cache
  std::uint64_t expert_misses = 0;
};

}  // namespace quarrel::api
