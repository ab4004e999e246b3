/* The same as hello.cpp, in C: hello_c MODEL [PROMPT] */
#include <stdio.h>

#include "quarrel/quarrel_c.h"

static int show(const quarrel_piece* piece, void* user) {
  (void)user;
  fwrite(piece->text.data, 1, piece->text.bytes, stdout);
  fflush(stdout);
  return 1; /* 0 would end the answer */
}

int main(int argc, char** argv) {
  if (argc < 2) {
    fputs("hello_c MODEL [PROMPT]\n", stderr);
    return 2;
  }
  quarrel_error error = QUARREL_ERROR_INIT;
  quarrel_model* model = NULL;
  if (quarrel_model_load(quarrel_text_of(argv[1]), NULL, &model, &error) != QUARREL_OK) {
    fprintf(stderr, "error: %s\n", error.message);
    return 1;
  }

  quarrel_generate_options options;
  quarrel_generate_options_init(&options, sizeof options);
  options.max_tokens = 64;
  options.temperature = 0.7f;
  options.top_p = 0.9f;
  options.seed = 1;
  options.has_seed = 1;
  quarrel_message message;
  message.role = quarrel_text_of("user");
  message.content = quarrel_text_of(argc > 2 ? argv[2] : "What is a quarrel?");

  quarrel_result* result = NULL;
  quarrel_status status = quarrel_chat(model, &message, 1, &options, show, NULL, &result, &error);
  quarrel_result_info info;
  info.size = sizeof info;
  if (status == QUARREL_OK) status = quarrel_result_get_info(result, &info, &error);
  if (status == QUARREL_OK) {
    fputs("\n", stdout);
    fprintf(stderr, "%llu tokens in, %zu out\n", (unsigned long long)info.prompt_tokens, info.token_count);
  } else {
    fprintf(stderr, "error: %s\n", error.message);
  }
  quarrel_result_free(result);
  quarrel_model_free(model);
  return status == QUARREL_OK ? 0 : 1;
}
