/* Quarrel for C and whatever speaks to it: the same as quarrel.h, flattened.
 *
 * - Functions give a quarrel_status, QUARREL_OK if all went well. Where they take a quarrel_error* it is told why not;
 *   it may be null. No exception ever crosses.
 * - Texts have explicit sizes and are UTF-8; they need no zero at the end. What the library gives out lives as long as
 *   the handle it came from, or the callback it was given to.
 * - Null is an error and never a crash, and so is a handle of the wrong kind. Freeing null does nothing.
 * - Structs that may grow begin with their size. Fill them with the _init function of their kind and change what you
 *   like: an older program goes on working with a newer library, and a newer program is told when the library does not
 *   know a field that it has set.
 * - Every function may be called from any thread. A handle must not be freed while another thread uses it.
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
#define QUARREL_ABI_VERSION 2

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
  QUARREL_TOO_SMALL = 12     /* the caller's array; the count that was told would do */
};
typedef int32_t quarrel_status;

/* Why an answer ended. */
enum {
  QUARREL_FINISH_STOP = 0,
  QUARREL_FINISH_LENGTH = 1,
  QUARREL_FINISH_CONTEXT = 2,
  QUARREL_FINISH_CANCELLED = 3,
  QUARREL_FINISH_TIMEOUT = 4
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

/* These three never grow, since arrays are made of them. */
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

typedef struct quarrel_load_options {
  uint32_t size;
  int32_t threads;            /* 0: one a core that the process may use */
  int32_t context;            /* tokens of a prompt and its answer; 0: what the model was made for, or what fits */
  int32_t sequences;          /* answers computed at once */
  int32_t embeddings;         /* not 0: vectors instead of text, of a model that can do both */
  int32_t reserved;           /* 0 */
  uint64_t memory;            /* bytes to stay within; 0: what the machine has */
  quarrel_text device;        /* "cpu" or "reference"; empty: cpu */
  quarrel_text chat_template; /* empty: the model's own */
  quarrel_progress_callback progress;
  void* user;
} quarrel_load_options;

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
  int32_t penalty_window; /* how many last tokens the penalties look at; -1: all */
  uint64_t seed;
  int32_t has_seed; /* 0: another seed each time */
  int32_t logprobs; /* how many most likely tokens to tell of each, at most 20 */
  const quarrel_text* stop;
  size_t stop_count;
  const quarrel_token* stop_tokens; /* instead of the model's own, where has_stop_tokens is not 0 */
  size_t stop_token_count;
  int32_t has_stop_tokens;
  int32_t timeout_ms; /* waiting included; 0: none */
  const quarrel_cancel* cancel;
  int32_t answers; /* how many to give */
  int32_t best_of; /* how many to compute and choose the likeliest of, best first; 0: no more than are given. If more,
                      there must be no callback */
} quarrel_generate_options;

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
} quarrel_model_info;

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
  size_t answer_count; /* how many answers the result has */
} quarrel_result_info;

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

/* `name`: a GGUF file, or a model in Quarrel's or Ollama's store. `options` may be null. */
QUARREL_C_API quarrel_status quarrel_model_load(quarrel_text name, const quarrel_load_options* options,
                                                quarrel_model** model, quarrel_error* error);
/* Answers that still run on it keep what they need. */
QUARREL_C_API void quarrel_model_free(quarrel_model* model);
/* Set `info->size` first. */
QUARREL_C_API quarrel_status quarrel_model_get_info(const quarrel_model* model, quarrel_model_info* info,
                                                    quarrel_error* error);

/* Into the caller's array. `count` is always told; where it is beyond `capacity` the status is QUARREL_TOO_SMALL and
 * nothing is written, so a null array with a capacity of 0 asks how many there are. */
QUARREL_C_API quarrel_status quarrel_tokenize(const quarrel_model* model, quarrel_text text, int add_special,
                                              quarrel_token* tokens, size_t capacity, size_t* count,
                                              quarrel_error* error);
QUARREL_C_API quarrel_status quarrel_detokenize(const quarrel_model* model, const quarrel_token* tokens, size_t count,
                                                char* text, size_t capacity, size_t* bytes, quarrel_error* error);
/* A conversation by the model's template, up to where the answer begins. */
QUARREL_C_API quarrel_status quarrel_chat_prompt(const quarrel_model* model, const quarrel_message* messages,
                                                 size_t message_count, quarrel_token* tokens, size_t capacity,
                                                 size_t* count, quarrel_error* error);

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
QUARREL_C_API void quarrel_result_free(quarrel_result* result);

/* Ends answers from another thread: those that run with it, and those that would be started with it. It may be freed
 * while they run. */
QUARREL_C_API quarrel_status quarrel_cancel_new(quarrel_cancel** cancel, quarrel_error* error);
QUARREL_C_API quarrel_status quarrel_cancel_now(const quarrel_cancel* cancel, quarrel_error* error);
QUARREL_C_API void quarrel_cancel_free(quarrel_cancel* cancel);

/* A vector for each text, one after the other into `values`: count times info.embedding_width numbers, told as
 * `needed`; beyond `capacity` as above, and then nothing is computed. */
QUARREL_C_API quarrel_status quarrel_embed(const quarrel_model* model, const quarrel_text* texts, size_t count,
                                           float* values, size_t capacity, size_t* needed, quarrel_error* error);

#ifdef __cplusplus
}
#endif
