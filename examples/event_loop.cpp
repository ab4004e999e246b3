// Several answers in one event loop, and no thread that waits for any of them: event_loop MODEL [PROMPT…]
#include <poll.h>

#include <chrono>
#include <iostream>
#include <string>
#include <vector>

#include "quarrel/quarrel.h"

int main(int argc, char** argv) {
  namespace api = quarrel::api;
  if (argc < 2) {
    std::cerr << "event_loop MODEL [PROMPT...]\n";
    return 2;
  }
  std::vector<std::string> prompts(argv + 2, argv + argc);
  if (prompts.empty()) prompts = {"The sea", "A machine", "Once upon a time"};
  try {
    const api::Model model = api::Model::load(argv[1]);
    std::vector<api::Generation> answers;
    std::vector<pollfd> watched;
    for (const std::string& prompt : prompts) {
      answers.push_back(model.open(prompt, {.max_tokens = 24}));
      watched.push_back({.fd = answers.back().event_fd(), .events = POLLIN, .revents = 0});
    }
    for (std::size_t open = answers.size(); open > 0;) {
      if (::poll(watched.data(), watched.size(), -1) < 0) continue;
      for (std::size_t i = 0; i < answers.size(); ++i) {
        if (watched[i].fd < 0 || watched[i].revents == 0) continue;
        // Everything that has come by now; a server would write it to its client.
        while (const auto event = answers[i].next(std::chrono::microseconds(0))) prompts[i] += event->text;
        if (!answers[i].done()) continue;
        watched[i].fd = -1;
        --open;
        std::cout << prompts[i] << "\n---\n";
      }
    }
    return 0;
  } catch (const api::Error& error) {
    std::cerr << "error: " << error.what() << '\n';
    return 1;
  }
}
