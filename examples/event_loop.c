/* An answer in an event loop, in C: event_loop_c MODEL [PROMPT] */
#include <poll.h>
#include <stdio.h>

#include "quarrel/quarrel_c.h"

/* Reads what has come; QUARREL_NOTHING when there is no more for now. */
static quarrel_status show(quarrel_generation* generation, quarrel_error* error) {
  quarrel_event event;
  quarrel_status status;
  event.size = sizeof event;
  while ((status = quarrel_generation_next(generation, 0, &event, error)) == QUARREL_OK) {
    if (event.kind == QUARREL_EVENT_PIECE) fwrite(event.text.data, 1, event.text.bytes, stdout);
  }
  fflush(stdout);
  return status;
}

int main(int argc, char** argv) {
  if (argc < 2) {
    fputs("event_loop_c MODEL [PROMPT]\n", stderr);
    return 2;
  }
  quarrel_error error = QUARREL_ERROR_INIT;
  quarrel_model* model = NULL;
  quarrel_generation* generation = NULL;
  quarrel_status status = quarrel_model_load(quarrel_text_of(argv[1]), NULL, &model, &error);

  quarrel_generate_options options;
  quarrel_generate_options_init(&options, sizeof options);
  options.max_tokens = 24;
  quarrel_prompt prompt = {0};
  prompt.size = sizeof prompt;
  prompt.kind = QUARREL_PROMPT_TEXT;
  prompt.text = quarrel_text_of(argc > 2 ? argv[2] : "The sea");
  if (status == QUARREL_OK) status = quarrel_generation_open(model, &prompt, &options, &generation, &error);

  struct pollfd watched;
  watched.fd = -1;
  watched.events = POLLIN;
  if (status == QUARREL_OK) status = quarrel_generation_get_event_fd(generation, &watched.fd, &error);
  if (status == QUARREL_OK) {
    fwrite(prompt.text.data, 1, prompt.text.bytes, stdout);
    do {
      poll(&watched, 1, -1); /* with whatever else the program waits for */
      status = show(generation, &error);
    } while (status == QUARREL_NOTHING);
  }
  if (status == QUARREL_END) {
    fputs("\n---\n", stdout);
  } else {
    fprintf(stderr, "error: %s\n", error.message);
  }
  quarrel_generation_free(generation);
  quarrel_model_free(model);
  return status == QUARREL_END ? 0 : 1;
}
