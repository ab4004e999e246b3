// A dataset of a store that takes its time: waits until the store has taken in what it was sent, also where it does not
// answer for a while.
//
// Used by what begins a journal and by what sends batches. Threads: one at a time. Calls block.
#pragma once

#include <chrono>
#include <functional>
#include <stop_token>
#include <string>

#include "flight/longbow.h"

namespace quarrel {

struct SendOptions {
  int attempts = 6;                                                        // to send a batch
  std::chrono::milliseconds first_pause = std::chrono::milliseconds(500);  // before another attempt; doubles
  std::chrono::milliseconds patience = std::chrono::minutes(10);           // until the store has taken in what it has
  // A store may still be reading what a client sent that is gone: it must say the same twice, so far apart.
  std::chrono::milliseconds settling = std::chrono::seconds(1);
};

class DatasetWait {
 public:
  // What is going on, for whoever watches: "the store does not answer; another attempt in 2s".
  using Note = std::function<void(const std::string& sentence)>;

  // The client must outlive this.
  DatasetWait(LongbowClient& client, std::string dataset, const SendOptions& options, Note note);

  LongbowClient& client() const noexcept { return client_; }
  const std::string& dataset() const noexcept { return dataset_; }
  void note(const std::string& sentence) const;

  // Until the store has taken in everything; `missing` where there is no such dataset. Throws LongbowError, and Error:
  // busy where the store takes too long, cancelled.
  Readiness until_ready(const std::stop_token& stop) const;
  // The same until it has said so twice; busy also where it goes on changing for as long as anybody is patient.
  Readiness until_settled(const std::stop_token& stop) const;
  // Throws Error(cancelled) where a stop is requested meanwhile.
  static void pause(std::chrono::milliseconds time, const std::stop_token& stop);

 private:
  Readiness ask_patiently(const std::stop_token& stop) const;
  [[noreturn]] void give_up() const;

  LongbowClient& client_;
  const std::string dataset_;
  const SendOptions options_;
  const Note note_;
};

}  // namespace quarrel
