#include "app/embedding_neighbour.h"

#include <algorithm>
#include <utility>

#include "backend/sampling.h"
#include "base/clock.h"
#include "base/error.h"
#include "session/embedding.h"

namespace quarrel {
namespace {

std::vector<std::vector<TokenId>> random_texts(const LoadedModel& model, const NeighbourLoad& load) {
  std::vector<std::vector<TokenId>> texts(static_cast<std::size_t>(load.texts));
  std::uint64_t place = 0;
  for (std::vector<TokenId>& text : texts) {
    for (std::int32_t i = 0; i < load.tokens; ++i) {
      text.push_back(static_cast<TokenId>(uniform(1, place++) * model.spec().vocabulary));
    }
  }
  return texts;
}

}  // namespace

EmbeddingNeighbour::EmbeddingNeighbour(std::shared_ptr<LoadedModel> model, const NeighbourLoad& load)
    : model_(std::move(model)), texts_(random_texts(*model_, load)), thread_([this] { run(); }) {}

EmbeddingNeighbour::~EmbeddingNeighbour() {
  stopping_ = true;
  if (thread_.joinable()) thread_.join();
}

void EmbeddingNeighbour::run() {
  const auto start = Clock::now();
  std::size_t done = 0;
  try {
    while (!stopping_) {
      done = 0;
      embed(model_, texts_, {}, [&](std::size_t finished, std::size_t) {
        done = finished;
        return !stopping_.load();
      });
      result_.texts += static_cast<std::int64_t>(std::exchange(done, 0));
    }
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::cancelled) failure_ = std::current_exception();
  } catch (...) {
    failure_ = std::current_exception();
  }
  result_.texts += static_cast<std::int64_t>(done);
  result_.seconds = seconds_since(start);
}

NeighbourResult EmbeddingNeighbour::stop() {
  stopping_ = true;
  if (thread_.joinable()) thread_.join();
  if (failure_) std::rethrow_exception(failure_);
  return result_;
}

}  // namespace quarrel
