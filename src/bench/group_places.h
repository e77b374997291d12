#pragma once

/// An engine that refills late: of the places it has, those of a group are free again only when all of
/// the group's samples in it have ended. Engines refill at once; this is what that is compared with.

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/forwarding_client.h"

namespace slime::bench {

class GroupPlaces final : public engine::ForwardingClient {
 public:
  /// `group_of`: of a request, by its rid. `engine` outlives the object.
  GroupPlaces(engine::EngineClient& engine, int64_t num_places,
              std::function<int64_t(const std::string& rid)> group_of)
      : ForwardingClient(engine), num_free_(num_places), group_of_(std::move(group_of)) {}

  engine::RequestHandle submit(engine::GenerateRequest request, OnUpdate on_update) override {
    engine::RequestHandle handle{};
    {
      const std::lock_guard lock(mutex_);
      handle = engine::RequestHandle{++num_handles_};
      waiting_.push_back({handle, std::move(request), std::move(on_update)});
    }
    fill();
    return handle;
  }
  Expected<void> abort(engine::RequestHandle request) override {
    end_waiting([request](const Waiting& waiting) { return waiting.handle == request; });
    const std::lock_guard lock(mutex_);
    const auto found = inside_.find(request);
    return found == inside_.end() ? Expected<void>{} : engine_.abort(found->second);
  }
  Expected<void> abort_prefix(const std::string& prefix) override {
    end_waiting(
        [&prefix](const Waiting& waiting) { return waiting.request.rid.starts_with(prefix); });
    return engine_.abort_prefix(prefix);
  }
  Expected<void> abort_all() override { return abort_prefix(""); }

 private:
  struct Waiting {
    engine::RequestHandle handle{};
    engine::GenerateRequest request;
    OnUpdate on_update;
  };
  struct Group {
    int64_t num_places = 0;  // taken
    int64_t num_open = 0;    // of those, by samples that have not ended
  };

  /// Into the engine goes what there are places for.
  void fill() {
    for (;;) {
      Waiting next;
      int64_t group = 0;
      {
        const std::lock_guard lock(mutex_);
        if (num_free_ == 0 || waiting_.empty()) return;
        next = std::move(waiting_.front());
        waiting_.pop_front();
        group = group_of_(next.request.rid);
        --num_free_;
        ++groups_[group].num_places;
        ++groups_[group].num_open;
      }
      const engine::RequestHandle handle = next.handle;
      const engine::RequestHandle inside = engine_.submit(
          std::move(next.request), [this, handle, group, on_update = std::move(next.on_update)](
                                       engine::GenerateUpdate update) {
            const bool ends = update.finish.has_value();
            on_update(std::move(update));
            if (ends) leave(handle, group);
          });
      const std::lock_guard lock(mutex_);
      if (ended_.erase(handle) == 0) inside_.emplace(handle, inside);
    }
  }

  void leave(engine::RequestHandle handle, int64_t group) {
    {
      const std::lock_guard lock(mutex_);
      if (inside_.erase(handle) == 0) ended_.insert(handle);  // fill() has not noted it yet
      Group& left = groups_.at(group);
      if (--left.num_open > 0) return;
      num_free_ += left.num_places;
      groups_.erase(group);
    }
    fill();
  }

  void end_waiting(const std::function<bool(const Waiting&)>& which) {
    std::vector<Waiting> ended;
    {
      const std::lock_guard lock(mutex_);
      std::deque<Waiting> others;
      for (Waiting& waiting : waiting_) {
        if (which(waiting)) {
          ended.push_back(std::move(waiting));
        } else {
          others.push_back(std::move(waiting));
        }
      }
      waiting_ = std::move(others);
    }
    for (Waiting& waiting : ended) {
      engine::GenerateUpdate last;
      last.rid = waiting.request.rid;
      last.prompt_tokens = static_cast<int64_t>(waiting.request.input_ids.size());
      last.finish = engine::aborted(engine::FinishReason::Cause::kRequested, "it has not begun");
      waiting.on_update(std::move(last));
    }
  }

  std::mutex mutex_;  // guards all below
  int64_t num_free_;
  const std::function<int64_t(const std::string&)> group_of_;
  uint64_t num_handles_ = 0;
  std::deque<Waiting> waiting_;
  std::map<engine::RequestHandle, engine::RequestHandle> inside_;
  std::set<engine::RequestHandle> ended_;
  std::map<int64_t, Group> groups_;
};

}  // namespace slime::bench
