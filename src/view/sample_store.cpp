#include <chrono>
#include <utility>

#include "core/error.h"
#include "view/sample_routes.h"

namespace slime::view {
namespace {

constexpr std::size_t kMostIndexes = 64;  // runs
constexpr std::chrono::milliseconds kIdle{1000};

}  // namespace

SampleStore::SampleStore() : thread_([this](const std::stop_token& stop) { run(stop); }) {}

SampleStore::~SampleStore() {
  thread_.request_stop();
  wanted_.notify_all();
}

std::shared_ptr<SampleIndex> SampleStore::index_of(const std::filesystem::path& folder) {
  std::shared_ptr<SampleIndex> index;
  {
    const std::lock_guard lock(mutex_);
    std::erase(recent_, folder);
    recent_.push_back(folder);
    if (recent_.size() > kMostIndexes) {
      indexes_.erase(recent_.front());
      recent_.erase(recent_.begin());
    }
    std::shared_ptr<SampleIndex>& slot = indexes_[folder];
    if (!slot) slot = std::make_shared<SampleIndex>(folder, budget_);
    index = slot;
    has_request_ = true;
  }
  wanted_.notify_all();
  return index;
}

std::shared_ptr<const FoundSamples> SampleStore::find(const std::shared_ptr<SampleIndex>& index,
                                                      const SampleQuery& query,
                                                      const std::string& key) {
  const std::string own =
      index->folder().string() + "\n" + std::to_string(index->version()) + "\n" + key;
  {
    const std::lock_guard lock(mutex_);
    if (own == last_key_) return last_found_;
  }
  std::unique_lock search(search_, std::defer_lock);
  if (!query.text.empty() && !search.try_lock())
    throw ConfigError("text: another search goes on; try again");
  auto found = std::make_shared<const FoundSamples>(find_samples(*index, query));
  const std::lock_guard lock(mutex_);
  last_key_ = own;
  last_found_ = found;
  return found;
}

/// Fills the index of the run that was asked for last, then of those before it.
void SampleStore::run(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    std::vector<std::shared_ptr<SampleIndex>> indexes;
    {
      const std::lock_guard lock(mutex_);
      for (auto folder = recent_.rbegin(); folder != recent_.rend(); ++folder)
        indexes.push_back(indexes_.at(*folder));
    }
    bool has_worked = false;
    for (const auto& index : indexes) {
      if ((has_worked = index->index_one())) break;
    }
    if (has_worked) continue;
    std::unique_lock lock(mutex_);
    wanted_.wait_for(lock, stop, kIdle, [this] { return has_request_; });
    has_request_ = false;
  }
}

}  // namespace slime::view
