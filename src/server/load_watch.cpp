#include "server/load_watch.h"

#include <utility>

namespace quarrel {

std::shared_ptr<void> LoadWatch::watch(std::string name, Callback callback) {
  auto watcher = std::make_shared<Watcher>(Watcher{std::move(name), std::move(callback)});
  const std::scoped_lock lock(mutex_);
  std::erase_if(watchers_, [](const std::weak_ptr<Watcher>& each) { return each.expired(); });
  watchers_.push_back(watcher);
  return watcher;
}

void LoadWatch::report(const LoadEvent& event) {
  std::vector<std::shared_ptr<Watcher>> told;
  {
    const std::scoped_lock lock(mutex_);
    for (const std::weak_ptr<Watcher>& each : watchers_) {
      std::shared_ptr<Watcher> watcher = each.lock();
      if (watcher != nullptr && watcher->name == event.name) told.push_back(std::move(watcher));
    }
  }
  for (const std::shared_ptr<Watcher>& watcher : told) watcher->callback(event);
}

}  // namespace quarrel
