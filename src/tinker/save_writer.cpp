#include "tinker/save_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <utility>

#include "core/safe_text.h"

namespace slime::tinker {
namespace fs = std::filesystem;
namespace {

using std::chrono::steady_clock;

void tell_unwritten(const NamedSave& save, const std::exception_ptr& problem) {
  try {
    std::rethrow_exception(problem);
  } catch (const std::exception& error) {
    fmt::print(stderr, "slime tinker: {}: {} is not written yet: {}\n", save.model,
               save.directory.string(), safe_text(error.what()));
  }
}

}  // namespace

SaveWriter::SaveWriter(std::function<void(const NamedSave&)> write,
                       std::chrono::milliseconds pause_after_failure)
    : write_(std::move(write)),
      pause_after_failure_(pause_after_failure),
      thread_([this](const std::stop_token& stop) { run(stop); }) {}

SaveWriter::~SaveWriter() {
  thread_.request_stop();
  thread_.join();
  std::unique_lock lock(mutex_);
  for (auto entry = entries_.begin(); entry != entries_.end();)
    try_to_write(std::exchange(entry, std::next(entry)), lock);
  remove_unused(lock);
}

void SaveWriter::add(NamedSave save) {
  const std::lock_guard lock(mutex_);
  entries_.push_back({std::move(save), nullptr, {}});
  changed_.notify_all();
}

void SaveWriter::remove(const std::vector<fs::path>& folders) {
  std::vector<fs::path> gone;
  for (const fs::path& folder : folders) {
    // Another of the same name may come before this one is removed.
    const fs::path aside = folder.parent_path() / ("." + folder.filename().string() + ".gone");
    std::error_code error;
    fs::rename(folder, aside, error);
    error ? void(fs::remove_all(folder, error)) : gone.push_back(aside);
  }
  const std::lock_guard lock(mutex_);
  unused_.insert(unused_.end(), gone.begin(), gone.end());
  changed_.notify_all();
}

void SaveWriter::wait_for_room(std::size_t most) {
  std::unique_lock lock(mutex_);
  std::exception_ptr problem;
  changed_.wait(lock, [&] {
    if (entries_.size() < most) return true;
    // Those that have not failed make room.
    if (std::ranges::any_of(entries_, [](const Entry& entry) { return entry.problem == nullptr; }))
      return false;
    problem = entries_.front().problem;
    return true;
  });
  if (problem) std::rethrow_exception(problem);
}

void SaveWriter::finish(const Which& which) {
  std::unique_lock lock(mutex_);
  for (Entry& entry : entries_) {
    if (!which(entry.save)) continue;
    entry.problem = nullptr;
    entry.next_try = {};
  }
  changed_.notify_all();
  std::exception_ptr problem;
  changed_.wait(lock, [&] {
    problem = nullptr;
    for (const Entry& entry : entries_) {
      if (!which(entry.save)) continue;
      if (entry.problem == nullptr) return false;
      if (problem == nullptr) problem = entry.problem;
    }
    return true;
  });
  if (problem) std::rethrow_exception(problem);
}

void SaveWriter::drop(const Which& which) {
  std::list<Entry> dropped;  // their snapshots end without the mutex
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return writing_ == nullptr || !which(writing_->save); });
  for (auto entry = entries_.begin(); entry != entries_.end();) {
    const auto next = std::next(entry);
    if (which(entry->save)) dropped.splice(dropped.end(), entries_, entry);
    entry = next;
  }
  changed_.notify_all();
}

bool SaveWriter::has(const Which& which) const {
  const std::lock_guard lock(mutex_);
  return std::ranges::any_of(entries_, [&](const Entry& entry) { return which(entry.save); });
}

SharedSnapshot SaveWriter::find(const std::filesystem::path& directory) const {
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find_if(
      entries_, [&](const Entry& entry) { return entry.save.directory == directory; });
  return found == entries_.end() ? nullptr : found->save.snapshot;
}

std::list<SaveWriter::Entry>::iterator SaveWriter::next() {
  const auto now = steady_clock::now();
  return std::ranges::find_if(entries_, [&](const Entry& entry) { return entry.next_try <= now; });
}

void SaveWriter::remove_unused(std::unique_lock<std::mutex>& lock) {
  const std::vector<fs::path> folders = std::exchange(unused_, {});
  lock.unlock();
  std::error_code ignored;
  for (const fs::path& folder : folders) fs::remove_all(folder, ignored);
  lock.lock();
}

void SaveWriter::try_to_write(std::list<Entry>::iterator entry,
                              std::unique_lock<std::mutex>& lock) {
  std::exception_ptr problem;
  writing_ = &*entry;
  lock.unlock();
  try {
    write_(entry->save);
  } catch (...) {
    problem = std::current_exception();
    tell_unwritten(entry->save, problem);
  }
  std::list<Entry> written;  // its snapshot ends without the mutex
  lock.lock();
  writing_ = nullptr;
  if (problem) {
    entry->problem = problem;
    entry->next_try = steady_clock::now() + pause_after_failure_;
  } else {
    written.splice(written.begin(), entries_, entry);
  }
  changed_.notify_all();
  lock.unlock();
  written.clear();
  lock.lock();
}

void SaveWriter::run(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (!stop.stop_requested()) {
    if (const auto entry = next(); entry != entries_.end()) {
      try_to_write(entry, lock);
    } else if (!unused_.empty()) {
      remove_unused(lock);
    } else if (entries_.empty()) {
      changed_.wait(lock, stop, [this] { return !entries_.empty() || !unused_.empty(); });
    } else {
      changed_.wait_for(lock, stop, pause_after_failure_,
                        [this] { return next() != entries_.end() || !unused_.empty(); });
    }
  }
}

}  // namespace slime::tinker
