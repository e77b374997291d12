#include "rollout/virtual_time.h"

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace slime::rollout {

VirtualTime::VirtualTime(int64_t num_slots) : num_slots_(num_slots) {
  check(num_slots_ >= 1, "virtual time needs a slot");
}

int64_t VirtualTime::join(int64_t group_ordinal, const std::vector<bool>& draws) {
  const auto first = static_cast<int64_t>(samples_.size());
  int64_t& num_open = num_open_[group_ordinal];
  check(num_open == 0, "a group joins once");
  for (const bool sample_draws : draws) {
    if (sample_draws) {
      line_.push_back(static_cast<int64_t>(samples_.size()));
      ++num_open;
    }
    samples_.push_back({.group = group_ordinal, .is_over = !sample_draws});
  }
  if (num_open == 0) finished_.push_back(group_ordinal);
  return first;
}

void VirtualTime::ended(int64_t number, int64_t num_tokens) {
  check(!sample(number).length, "a sample ends once");
  sample(number).length = num_tokens;
}

int64_t VirtualTime::num_sampled(int64_t number) const {
  const Entry& entry = sample(number);
  if (!entry.begin) return 0;
  const int64_t ticks = now_ - *entry.begin;
  return entry.length ? std::min(ticks, *entry.length) : ticks;
}

void VirtualTime::admit() {
  while (!line_.empty() && static_cast<int64_t>(drawing_.size()) < num_slots_) {
    sample(line_.front()).begin = now_;
    drawing_.push_back(line_.front());
    line_.pop_front();
  }
}

std::optional<int64_t> VirtualTime::next_end(const NumSampled& num_sampled) {
  std::optional<int64_t> next;
  for (const int64_t number : drawing_) {
    const Entry& entry = sample(number);
    if (!entry.length) continue;
    const int64_t end = *entry.begin + *entry.length;
    if (!next || end < *next) next = end;
  }
  if (!next) return std::nullopt;
  // A sample that goes on after its token of tick t does not end in tick t or before.
  int64_t furthest = 0;
  for (const int64_t number : drawing_) {
    const Entry& entry = sample(number);
    if (entry.length) continue;
    const int64_t missing = *next - *entry.begin - num_sampled(number);
    if (missing <= furthest) continue;
    furthest = missing;
    awaited_ = Awaited{number, *next - *entry.begin};
  }
  return awaited_ ? std::nullopt : next;
}

std::vector<int64_t> VirtualTime::next_groups(const NumSampled& num_sampled) {
  awaited_.reset();
  while (finished_.empty()) {
    admit();
    const std::optional<int64_t> next = next_end(num_sampled);
    if (!next) return {};
    now_ = *next;
    std::erase_if(drawing_, [this](int64_t number) {
      Entry& entry = sample(number);
      if (!entry.length || *entry.begin + *entry.length > now_) return false;
      entry.is_over = true;
      if (--num_open_[entry.group] == 0) finished_.push_back(entry.group);
      return true;
    });
  }
  std::ranges::sort(finished_);
  return std::exchange(finished_, {});
}

}  // namespace slime::rollout
