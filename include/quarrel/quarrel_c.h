/* Quarrel for C and whatever speaks to it: the same as quarrel.h, flattened.
 *
 * - Functions give a quarrel_status, QUARREL_OK if all went well. Where they take a quarrel_error* it says why not; it
 * may be null. No exception ever crosses.
 * - Texts have explicit sizes and are UTF-8; they need no zero at the end. What the library gives out lives as long as
 *   the handle it came from, or the callback it was given to.
 * - Null is an error and never a crash, and so is a handle of the wrong kind. Freeing null does nothing.
 * - Structs that may grow begin with their size. Fill them with the _init function of their kind and change what you
 *   like: an older program goes on working with a newer library, and a newer program is told when the library does not
 *   know a field that it has set.
 * - Every function may be called from any thread. A handle must not be freed while another thread uses it.
 * - After `fork` only the process that loaded a model can use it: in the child every call on it, its generations and
 *   its cancel handles gives QUARREL_USAGE, and freeing does nothing.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__GNUC__)
#define QUARREL_C_API __attribute__((visibility("default")))
#else
#define QUARREL_C_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Raised when something is added; nothing is ever taken away. */
#define QUARREL_ABI_VERSION 3

typedef int32_t quarrel_token;
#define QUARREL_NO_TOKEN ((quarrel_token) - 1)

enum {
  QUARREL_OK = 0,
  QUARREL_USAGE = 1,         /* the call is malformed: a null, a handle of another kind */
  QUARREL_NOT_FOUND = 2,     /* a file or a model that is not there */
  QUARREL_BAD_FILE = 3,      /* a file that is damaged */
  QUARREL_BAD_INPUT = 4,     /* text, tokens, messages or parameters that cannot be used */
  QUARREL_UNSUPPORTED = 5,   /* well-formed, but not something this model or this build can do */
  QUARREL_OUT_OF_MEMORY = 6, /* it would not fit, or it did not */
  QUARREL_IO = 7,            /* the operating system refused */
  QUARREL_CANCELLED = 8,     /* somebody asked for it to stop */
  QUARREL_BUSY = 9,          /* too many requests wait already; try again later */
  QUARREL_FAILED = 10,       /* the model could not compute an answer */
  QUARREL_INTERNAL = 11,     /* our own mistake */
  QUARREL_TOO_SMALL = 12,    /* the caller's array; the count that was reported would do */
  QUARREL_NOTHING = 13,      /* nothing came in time; something may come yet */
  QUARREL_END = 14           /* everything was read */
};
typedef int32_t quarrel_status;

/* Why an answer ended. */
enum {
  QUARREL_FINISH_STOP = 0,
  QUARREL_FINISH_LENGTH = 1,
  QUARREL_FINISH_CONTEXT = 2,
  QUARREL_FINISH_CANCELLED = 3,
  QUARREL_FINISH_TIMEOUT = 4,
  QUARREL_FINISH_FAILED = 5,  /* the model could not compute it: see its error */
  QUARREL_FINISH_NO_TOKEN = 6 /* mask and bias left no token that may come */
};

enum { QUARREL_PRIORITY_INTERACTIVE = 0, QUARREL_PRIORITY_NORMAL = 1, QUARREL_PRIORITY_BATCH = 2 };
enum { QUARREL_OVERFLOW_REFUSE = 0, QUARREL_OVERFLOW_STOP = 1, QUARREL_OVERFLOW_SHIFT = 2 };
enum { QUARREL_PENALTY_ANSWER = 0, QUARREL_PENALTY_RECENT = 1 };
enum { QUARREL_KV_DEFAULT = 0, QUARREL_KV_F32 = 1, QUARREL_KV_F16 = 2 };
enum {
  QUARREL_ACTIVATIONS_AUTOMATIC = 0,
  QUARREL_ACTIVATIONS_INT8_SPLIT = 1,
  QUARREL_ACTIVATIONS_INT8 = 2,
  QUARREL_ACTIVATIONS_F32 = 3,
  QUARREL_ACTIVATIONS_F16 = 4 /* on a GPU alone */
};
enum {
  QUARREL_POOLING_DEFAULT = 0, /* the model's own */
  QUARREL_POOLING_NONE = 1,
  QUARREL_POOLING_MEAN = 2,
  QUARREL_POOLING_CLS = 3,
  QUARREL_POOLING_LAST = 4,
  QUARREL_POOLING_RANK = 5
};

typedef struct quarrel_error {
  uint32_t size; /* sizeof(quarrel_error), or the message is not written */
  quarrel_status status;
  char message[504]; /* one line with a zero at its end, cut if need be */
} quarrel_error;
#define QUARREL_ERROR_INIT {(uint32_t)sizeof(quarrel_error), QUARREL_OK, ""}

typedef struct quarrel_model quarrel_model;
typedef struct quarrel_cancel quarrel_cancel;
typedef struct quarrel_result quarrel_result;
typedef struct quarrel_generation quarrel_generation;
typedef struct quarrel_embeddings quarrel_embeddings;

/* These never grow, since arrays are made of them. */
typedef struct quarrel_text {
  const char* data;
  size_t bytes;
} quarrel_text;
typedef struct quarrel_message {
  quarrel_text role;
  quarrel_text content;
} quarrel_message;
typedef struct quarrel_logprob {
  quarrel_token token;
  float logprob;
} quarrel_logprob;
typedef struct quarrel_bias {
  quarrel_token token;
  float bias;
} quarrel_bias;
typedef struct quarrel_token_list {
  const quarrel_token* tokens;
  size_t count;
} quarrel_token_list;

/* What a chat template is given. */
typedef struct quarrel_chat_input {
  uint32_t size;
  int32_t no_generation_prompt; /* not 0: does not end where the assistant's next message begins */
  const quarrel_message* messages;
  size_t message_count;
  const quarrel_text* more; /* null, or one a message: a JSON object with "tool_calls", "name" …, or empty */
  quarrel_text tools;       /* a JSON list; empty: none */
  quarrel_text arguments;   /* a JSON object: more variables of the template's own; empty: none */
} quarrel_chat_input;

/* What an answer continues: exactly one of the three, told by `kind`. */
enum { QUARREL_PROMPT_TEXT = 0, QUARREL_PROMPT_TOKENS = 1, QUARREL_PROMPT_CHAT = 2 };
typedef struct quarrel_prompt {
  uint32_t size;
  int32_t kind;
  quarrel_text text; /* yours from end to end: what spells a control token becomes it */
  quarrel_token_list tokens;
  const quarrel_chat_input* chat;
} quarrel_prompt;

/* Text and tokens from a callback; see quarrel.h for when the text is empty and when there is no token. */
typedef struct quarrel_piece {
  uint32_t size;
  quarrel_token token;
  float logprob;
  uint32_t top_count;
  quarrel_text text;
  const quarrel_logprob* top;
  size_t answer; /* of several, which one it belongs to */
} quarrel_piece;

/* Zero ends what is going on; of several answers, the one that the piece belongs to. */
typedef int (*quarrel_piece_callback)(const quarrel_piece* piece, void* user);
typedef int (*quarrel_progress_callback)(uint64_t done, uint64_t total, void* user);
/* What is odd but no reason to refuse anything. While a model loads on that thread, afterwards on any, perhaps on
 * several at once. */
typedef void (*quarrel_warning_callback)(quarrel_text line, void* user);
/* Which tokens may come next: `allowed` has a bit a token of the vocabulary, the lowest first, all zero; 1 may come.
 * `tokens`: the answer so far. Called on a thread of the model's, which waits for it: it must be quick and must not
 * wait for the model. Not 0: all went well; 0 ends that answer, as failed. */
typedef int (*quarrel_mask_callback)(size_t answer, const quarrel_token* tokens, size_t token_count, uint64_t* allowed,
                                     size_t word_count, void* user);

/* What happens to a generation. Texts and lists live until the next call of quarrel_generation_next, or as long as the
 * callback. */
enum {
  QUARREL_EVENT_STARTED = 0,        /* it has left the queue */
  QUARREL_EVENT_PROMPT_LOGPROB = 1, /* the next token of the prompt */
  QUARREL_EVENT_PIECE = 2,
  QUARREL_EVENT_SHIFTED = 3, /* the context was full, and something was forgotten */
  QUARREL_EVENT_FINISHED = 4 /* of an answer */
};
typedef struct quarrel_event {
  uint32_t size;
  int32_t kind; /* QUARREL_EVENT_… */
  size_t answer;
  quarrel_token token;
  float logprob;
  quarrel_text text;
  const quarrel_logprob* top;
  size_t top_count;
  uint64_t cached_tokens;  /* of started */
  uint64_t dropped_tokens; /* of shifted */
  int32_t reason;          /* of finished: QUARREL_FINISH_… */
  int32_t reserved;
  quarrel_text error; /* of finished: why it failed, had no token or was cancelled, where somebody knows */
} quarrel_event;
/* Zero ends the answer that the event is of. */
typedef int (*quarrel_event_callback)(const quarrel_event* event, void* user);
/* All answers have ended. The result goes when the callback returns. */
typedef void (*quarrel_done_callback)(const quarrel_result* result, void* user);

typedef struct quarrel_load_options {
  uint32_t size;
  int32_t threads;            /* 0: one a core that the process may use */
  int32_t context;            /* tokens of a prompt and its answer; 0: what the model was made for, or what fits */
  int32_t sequences;          /* answers computed at once */
  int32_t embeddings;         /* without meaning since version 3: a model that can do both does both */
  int32_t reserved;           /* 0 */
  uint64_t memory;            /* bytes to stay within; 0: what the machine has */
  quarrel_text device;        /* "cpu", "reference", "cuda" or "auto" (see load.h); empty: cpu */
  quarrel_text chat_template; /* empty: the model's own */
  quarrel_progress_callback progress;
  void* user;                       /* of both callbacks */
  quarrel_warning_callback warning; /* as long as the model lives */
  const quarrel_model* beside;      /* shares this model's device and threads; null: a device of its own */
  int64_t cache_tokens;             /* that the KV cache holds of all answers together; 0: every context in full */
  int32_t batch_rows;               /* tokens a step at most */
  int32_t kv_type;                  /* QUARREL_KV_… */
  int32_t activations;              /* QUARREL_ACTIVATIONS_… */
  int32_t repack;                   /* 0: weights stay as they lie in the file */
  int32_t pin;                      /* not 0: each thread to a core of its own */
  int32_t pooling;                  /* QUARREL_POOLING_… */
  uint64_t expert_memory;           /* bytes for experts, where has_expert_memory is not 0 */
  int32_t has_expert_memory;
  int32_t prefix_cache;      /* 0: nothing is kept of prompts */
  int32_t queue_limit;       /* calls that wait; more are refused as busy */
  int32_t key_queue_limit;   /* those of one key; 0: no limit */
  int64_t queue_token_limit; /* the same in tokens */
  int64_t key_queue_token_limit;
  quarrel_text template_name; /* a built-in one; "none": conversations are refused; empty: see chat_template */
  int32_t warm_up;            /* not 0: a small request is answered first */
  int32_t reserved2;          /* 0 */
} quarrel_load_options;

/* What a load would take, in bytes. */
typedef struct quarrel_memory_estimate {
  uint32_t size;
  int32_t context; /* that the load would have */
  int32_t trained_context;
  int32_t sequences;
  uint64_t total;
  uint64_t mapped; /* of it, the file's own pages */
  uint64_t weights;
  uint64_t experts;
  uint64_t kv;
  uint64_t state;
  uint64_t workspace;
  uint64_t available; /* 0: nobody knows */
} quarrel_memory_estimate;

typedef struct quarrel_generate_options {
  uint32_t size;
  int32_t max_tokens; /* -1: until the model ends or the context is full */
  float temperature;  /* 0: always the most likely token */
  int32_t top_k;      /* 0: all */
  float top_p;
  float min_p;
  float repeat_penalty;
  float presence_penalty;
  float frequency_penalty;
  int32_t penalty_window; /* how many last tokens are recent; -1: all */
  uint64_t seed;
  int32_t has_seed; /* 0: another seed each time */
  int32_t logprobs; /* how many most likely tokens to report of each, at most 20 */
  const quarrel_text* stop;
  size_t stop_count;
  const quarrel_token* stop_tokens; /* instead of the model's own, where has_stop_tokens is not 0 */
  size_t stop_token_count;
  int32_t has_stop_tokens;
  int32_t timeout_ms; /* waiting included; 0: none */
  const quarrel_cancel* cancel;
  int32_t answers; /* how many to give */
  int32_t best_of; /* how many to compute and choose the likeliest of, best first; 0: no more than are given. If more,
                      pieces come when all have ended */
  int32_t penalty_scope; /* QUARREL_PENALTY_…: what presence and frequency penalties count */
  float typical_p;
  int32_t mirostat; /* not 0: mirostat 2 instead of the filters */
  float mirostat_tau;
  float mirostat_eta;
  const quarrel_bias* logit_bias;
  size_t logit_bias_count;
  quarrel_mask_callback mask;
  void* mask_user;
  int32_t show_special;    /* not 0: control tokens appear in the text */
  int32_t prompt_logprobs; /* not 0: of each token of the prompt but the first */
  int32_t overflow;        /* QUARREL_OVERFLOW_…: what happens where the context is full */
  int32_t keep;            /* first tokens of the prompt that a shift leaves */
  int32_t priority;        /* QUARREL_PRIORITY_… */
  int32_t pinned;          /* so many tokens of the prompt should stay in the prefix cache */
  uint64_t key;            /* whose call it is */
  uint64_t salt;           /* prompts of different salts share nothing in the prefix cache */
  int32_t use_cache;       /* 0: neither reads nor feeds the prefix cache */
  int32_t reserved;        /* 0 */
} quarrel_generate_options;

typedef struct quarrel_embed_options {
  uint32_t size;
  int32_t pooling;      /* QUARREL_POOLING_… */
  int32_t no_normalize; /* not 0: vectors as they come, not of length 1 */
  int32_t dimensions;   /* only the first so many values; 0: all */
  int32_t priority;     /* QUARREL_PRIORITY_… */
  int32_t timeout_ms;   /* of each text, waiting included; 0: none */
  uint64_t key;
  const quarrel_cancel* cancel;
} quarrel_embed_options;

typedef struct quarrel_model_info {
  uint32_t size;
  int32_t context;
  int32_t vocabulary;
  int32_t embedding_width; /* 0: it gives no vectors */
  int32_t generates;
  int32_t reserved;
  quarrel_text name;
  quarrel_text architecture;
  quarrel_text device;
  quarrel_text path;
  quarrel_text template_from; /* where the chat template comes from, in words; empty: there is none */
  int32_t trained_context;
  int32_t most_answers; /* of one call */
  int32_t pooling;      /* QUARREL_POOLING_…: how a text becomes a vector */
  int32_t embeds;
  int32_t ranks;
  int32_t reserved2;
  double load_seconds;
} quarrel_model_info;

/* Ids; QUARREL_NO_TOKEN: the vocabulary has none. */
typedef struct quarrel_special_tokens {
  uint32_t size;
  quarrel_token bos;
  quarrel_token eos;
  quarrel_token eot;
  quarrel_token unknown;
  quarrel_token separator;
  quarrel_token padding;
  quarrel_token cls;
  quarrel_token mask;
  int32_t add_bos;
  int32_t add_eos;
  int32_t reserved;
  quarrel_token_list end_of_generation; /* lives as long as the model */
} quarrel_special_tokens;

/* Counted since the model was loaded, unless it says "now". */
typedef struct quarrel_metrics {
  uint32_t size;
  int32_t running;   /* now */
  int32_t waiting;   /* now: never ran yet */
  int32_t returning; /* now: preempted, waiting to go on */
  uint64_t accepted; /* requests: answers to a prompt, or a text to embed */
  uint64_t finished;
  uint64_t refused;
  int64_t waiting_tokens; /* now */
  uint64_t steps;
  uint64_t failed_steps;
  uint64_t prompt_rows;
  uint64_t generated_rows;
  uint64_t tokens; /* that were sampled */
  uint64_t preemptions;
  uint64_t shifts;
  uint64_t cache_hit_tokens;
  uint64_t cache_miss_tokens;
  int64_t blocks_total;
  int64_t blocks_used;   /* now */
  int64_t blocks_cached; /* now */
  uint64_t divergences;
  uint64_t kv_saturated;
  uint64_t expert_hits;
  uint64_t expert_misses;
} quarrel_metrics;

enum { QUARREL_METADATA_TEXT = 0, QUARREL_METADATA_JSON = 1 };

/* Of one answer. */
typedef struct quarrel_result_info {
  uint32_t size;
  int32_t reason; /* QUARREL_FINISH_… */
  uint64_t prompt_tokens;
  uint64_t cached_tokens;
  uint64_t seed;
  quarrel_text text;
  const quarrel_token* tokens;
  const float* logprobs; /* of each token */
  size_t token_count;
  size_t answer_count;                    /* how many answers the result has */
  quarrel_text error;                     /* why it failed, had no token or was cancelled, where somebody knows */
  const quarrel_logprob* prompt_logprobs; /* of each token of the prompt but the first; the first answer has them */
  size_t prompt_logprob_count;
  double queue_seconds;    /* until it was begun */
  double prompt_seconds;   /* from then to the first token */
  double generate_seconds; /* from then to the end of the last answer */
} quarrel_result_info;

/* Of one text. */
typedef struct quarrel_embedding_info {
  uint32_t size;
  int32_t cut;         /* not 0: the text was longer than the model's limit … */
  size_t full_tokens;  /* … and would have had so many */
  size_t tokens;       /* that were fed, special ones included */
  const float* values; /* [vectors][width], one after the other */
  size_t width;
  size_t vectors; /* 1, or one a token where the pooling is none */
} quarrel_embedding_info;

static inline quarrel_text quarrel_text_of(const char* zero_terminated) {
  quarrel_text text;
  text.data = zero_terminated;
  text.bytes = zero_terminated ? strlen(zero_terminated) : 0;
  return text;
}

QUARREL_C_API uint32_t quarrel_abi_version(void);
QUARREL_C_API const char* quarrel_version(void); /* "0.1.0" */
QUARREL_C_API const char* quarrel_status_name(quarrel_status status);

/* The defaults, in as many bytes as the caller's struct has: quarrel_load_options_init(&options, sizeof options). */
QUARREL_C_API quarrel_status quarrel_load_options_init(quarrel_load_options* options, size_t size);
QUARREL_C_API quarrel_status quarrel_generate_options_init(quarrel_generate_options* options, size_t size);
QUARREL_C_API quarrel_status quarrel_embed_options_init(quarrel_embed_options* options, size_t size);

/* `name`: a GGUF file, or a model in Quarrel's or Ollama's store. `options` may be null. */
QUARREL_C_API quarrel_status quarrel_model_load(quarrel_text name, const quarrel_load_options* options,
                                                quarrel_model** model, quarrel_error* error);
/* What that would take, without loading anything. Set `estimate->size` first. */
QUARREL_C_API quarrel_status quarrel_model_estimate(quarrel_text name, const quarrel_load_options* options,
                                                    quarrel_memory_estimate* estimate, quarrel_error* error);
/* Answers that still run on it keep what they need. */
QUARREL_C_API void quarrel_model_free(quarrel_model* model);
/* Set `info->size` first. */
QUARREL_C_API quarrel_status quarrel_model_get_info(const quarrel_model* model, quarrel_model_info* info,
                                                    quarrel_error* error);

QUARREL_C_API quarrel_status quarrel_model_get_metrics(const quarrel_model* model, quarrel_metrics* metrics,
                                                       quarrel_error* error);
QUARREL_C_API quarrel_status quarrel_model_get_special_tokens(const quarrel_model* model,
                                                              quarrel_special_tokens* special, quarrel_error* error);
/* What the model's makers recommend, or else a preset for its family, over the defaults. Stop strings live as long as
 * the model. */
QUARREL_C_API quarrel_status quarrel_model_get_recommended(const quarrel_model* model,
                                                           quarrel_generate_options* options, quarrel_error* error);
/* Keys of the file, in its order; `key` lives as long as the model. Beyond the last: QUARREL_NOT_FOUND. */
QUARREL_C_API quarrel_status quarrel_model_get_metadata_key(const quarrel_model* model, size_t index, quarrel_text* key,
                                                            quarrel_error* error);
/* A value: a text as it is, anything else as JSON; `kind` may be null. QUARREL_NOT_FOUND where there is none. */
QUARREL_C_API quarrel_status quarrel_model_get_metadata(const quarrel_model* model, quarrel_text key, int32_t* kind,
                                                        char* value, size_t capacity, size_t* bytes,
                                                        quarrel_error* error);

/* Into the caller's array. `count` is always reported; where it is beyond `capacity` the status is QUARREL_TOO_SMALL
 * and nothing is written, so a null array with a capacity of 0 asks how many there are. */
QUARREL_C_API quarrel_status quarrel_tokenize(const quarrel_model* model, quarrel_text text, int add_special,
                                              quarrel_token* tokens, size_t capacity, size_t* count,
                                              quarrel_error* error);
QUARREL_C_API quarrel_status quarrel_detokenize(const quarrel_model* model, const quarrel_token* tokens, size_t count,
                                                char* text, size_t capacity, size_t* bytes, quarrel_error* error);
/* The same with more to choose: the spelling of control tokens becomes those tokens (parse_special), or they appear in
 * the text (show_special). */
QUARREL_C_API quarrel_status quarrel_tokenize_special(const quarrel_model* model, quarrel_text text, int add_special,
                                                      int parse_special, quarrel_token* tokens, size_t capacity,
                                                      size_t* count, quarrel_error* error);
QUARREL_C_API quarrel_status quarrel_detokenize_special(const quarrel_model* model, const quarrel_token* tokens,
                                                        size_t count, int show_special, char* text, size_t capacity,
                                                        size_t* bytes, quarrel_error* error);
/* The bytes that a token adds to a text: perhaps half a character. */
QUARREL_C_API quarrel_status quarrel_token_bytes(const quarrel_model* model, quarrel_token token, int show_special,
                                                 char* bytes, size_t capacity, size_t* count, quarrel_error* error);
/* A conversation by the model's template, up to where the answer begins. */
QUARREL_C_API quarrel_status quarrel_chat_prompt(const quarrel_model* model, const quarrel_message* messages,
                                                 size_t message_count, quarrel_token* tokens, size_t capacity,
                                                 size_t* count, quarrel_error* error);
/* The same with all that a template can be given, as tokens and as the text that they are. */
QUARREL_C_API quarrel_status quarrel_chat_tokens(const quarrel_model* model, const quarrel_chat_input* chat,
                                                 quarrel_token* tokens, size_t capacity, size_t* count,
                                                 quarrel_error* error);
QUARREL_C_API quarrel_status quarrel_chat_text(const quarrel_model* model, const quarrel_chat_input* chat, char* text,
                                               size_t capacity, size_t* bytes, quarrel_error* error);

/* Continue tokens, a text that is yours from end to end, a conversation. `options`, `callback` and `result` may be
 * null. The callback comes on the calling thread. */
QUARREL_C_API quarrel_status quarrel_generate(const quarrel_model* model, const quarrel_token* prompt, size_t count,
                                              const quarrel_generate_options* options, quarrel_piece_callback callback,
                                              void* user, quarrel_result** result, quarrel_error* error);
QUARREL_C_API quarrel_status quarrel_generate_text(const quarrel_model* model, quarrel_text prompt,
                                                   const quarrel_generate_options* options,
                                                   quarrel_piece_callback callback, void* user, quarrel_result** result,
                                                   quarrel_error* error);
QUARREL_C_API quarrel_status quarrel_chat(const quarrel_model* model, const quarrel_message* messages,
                                          size_t message_count, const quarrel_generate_options* options,
                                          quarrel_piece_callback callback, void* user, quarrel_result** result,
                                          quarrel_error* error);

/* The same for any prompt. */
QUARREL_C_API quarrel_status quarrel_generate_prompt(const quarrel_model* model, const quarrel_prompt* prompt,
                                                     const quarrel_generate_options* options,
                                                     quarrel_piece_callback callback, void* user,
                                                     quarrel_result** result, quarrel_error* error);
/* Where one answer is asked for and fails, these give QUARREL_FAILED. Of several, each says itself how it ended. */

/* Answers that no thread waits for: to be read with quarrel_generation_next … */
QUARREL_C_API quarrel_status quarrel_generation_open(const quarrel_model* model, const quarrel_prompt* prompt,
                                                     const quarrel_generate_options* options,
                                                     quarrel_generation** generation, quarrel_error* error);
/* … or with callbacks, either of which may be null. They come on a thread of the model's that is there for callbacks
 * alone, one at a time, perhaps before this has returned; they may call anything, and free their own generation. */
QUARREL_C_API quarrel_status quarrel_generation_start(const quarrel_model* model, const quarrel_prompt* prompt,
                                                      const quarrel_generate_options* options,
                                                      quarrel_event_callback on_event, quarrel_done_callback on_done,
                                                      void* user, quarrel_generation** generation,
                                                      quarrel_error* error);
/* Set `event->size` first. `timeout_ms` below 0 waits, 0 only looks. QUARREL_NOTHING: nothing came in time.
 * QUARREL_END: everything was read. One thread at a time. */
QUARREL_C_API quarrel_status quarrel_generation_next(quarrel_generation* generation, int64_t timeout_ms,
                                                     quarrel_event* event, quarrel_error* error);
/* Reads the rest, or waits for the last callback, and gives all that was read. `result` may be null. */
QUARREL_C_API quarrel_status quarrel_generation_wait(quarrel_generation* generation, quarrel_result** result,
                                                     quarrel_error* error);
/* `done` is 1 when everything was read, or the last callback has returned. */
QUARREL_C_API quarrel_status quarrel_generation_get_done(const quarrel_generation* generation, int32_t* done,
                                                         quarrel_error* error);
/* A descriptor for poll and the like: readable while quarrel_generation_next would not wait. It goes with the
 * generation; it is not to be read or closed by others. */
QUARREL_C_API quarrel_status quarrel_generation_get_event_fd(quarrel_generation* generation, int* fd,
                                                             quarrel_error* error);
/* No piece comes any more, but each answer still ends with QUARREL_EVENT_FINISHED. */
QUARREL_C_API quarrel_status quarrel_generation_cancel(quarrel_generation* generation, quarrel_error* error);
QUARREL_C_API quarrel_status quarrel_generation_cancel_answer(quarrel_generation* generation, size_t answer,
                                                              quarrel_error* error);
/* Cancels what still runs. When it returns no callback runs any more, unless it is the one that called. */
QUARREL_C_API void quarrel_generation_free(quarrel_generation* generation);

/* Of the first answer, or the only one. Set `info->size` first. */
QUARREL_C_API quarrel_status quarrel_result_get_info(const quarrel_result* result, quarrel_result_info* info,
                                                     quarrel_error* error);
/* The most likely tokens in the place of token `index`, where they were asked for. */
QUARREL_C_API quarrel_status quarrel_result_get_top(const quarrel_result* result, size_t index,
                                                    const quarrel_logprob** top, size_t* count, quarrel_error* error);
/* The same of any answer. */
QUARREL_C_API quarrel_status quarrel_result_get_answer_info(const quarrel_result* result, size_t answer,
                                                            quarrel_result_info* info, quarrel_error* error);
QUARREL_C_API quarrel_status quarrel_result_get_answer_top(const quarrel_result* result, size_t answer, size_t index,
                                                           const quarrel_logprob** top, size_t* count,
                                                           quarrel_error* error);
/* The most likely tokens in the place of the prompt's token `index` + 1, where they were asked for. */
QUARREL_C_API quarrel_status quarrel_result_get_prompt_top(const quarrel_result* result, size_t index,
                                                           const quarrel_logprob** top, size_t* count,
                                                           quarrel_error* error);
QUARREL_C_API void quarrel_result_free(quarrel_result* result);

/* Ends answers from another thread: those that run with it, and those that would be started with it. It may be freed
 * while they run. */
QUARREL_C_API quarrel_status quarrel_cancel_new(quarrel_cancel** cancel, quarrel_error* error);
QUARREL_C_API quarrel_status quarrel_cancel_now(const quarrel_cancel* cancel, quarrel_error* error);
QUARREL_C_API void quarrel_cancel_free(quarrel_cancel* cancel);

/* A vector for each text, one after the other into `values`: count times info.embedding_width numbers, reported as
 * `needed`; beyond `capacity` as above, and then nothing is computed. */
QUARREL_C_API quarrel_status quarrel_embed(const quarrel_model* model, const quarrel_text* texts, size_t count,
                                           float* values, size_t capacity, size_t* needed, quarrel_error* error);
/* The same with options, of texts or of tokens (which need their special ones). */
QUARREL_C_API quarrel_status quarrel_embed_texts(const quarrel_model* model, const quarrel_text* texts, size_t count,
                                                 const quarrel_embed_options* options, quarrel_embeddings** embeddings,
                                                 quarrel_error* error);
QUARREL_C_API quarrel_status quarrel_embed_tokens(const quarrel_model* model, const quarrel_token_list* texts,
                                                  size_t count, const quarrel_embed_options* options,
                                                  quarrel_embeddings** embeddings, quarrel_error* error);
/* Of one text. Set `info->size` first. */
QUARREL_C_API quarrel_status quarrel_embeddings_get_info(const quarrel_embeddings* embeddings, size_t text,
                                                         quarrel_embedding_info* info, quarrel_error* error);
QUARREL_C_API void quarrel_embeddings_free(quarrel_embeddings* embeddings);
/* Rows of the embedding table as the file has them, one after the other. */
QUARREL_C_API quarrel_status quarrel_embedding_rows(const quarrel_model* model, const quarrel_token* tokens,
                                                    size_t count, float* values, size_t capacity, size_t* needed,
                                                    quarrel_error* error);
QUARREL_C_API quarrel_status quarrel_embedding_rows_of_text(const quarrel_model* model, quarrel_text text,
                                                            float* values, size_t capacity, size_t* needed,
                                                            quarrel_error* error);

#ifdef __cplusplus
}
#endif
