#include "view/sample_index.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <limits>
#include <system_error>
#include <unordered_map>
#include <utility>

#include "core/json.h"
#include "report/run_files.h"

namespace slime::view {
namespace {

namespace fs = std::filesystem;
using std::chrono::steady_clock;

constexpr std::chrono::milliseconds kFresh{500};
constexpr std::size_t kLongestLine = std::size_t{64} << 20;

struct GroupSeen {
  int64_t num_samples = 0;
  float reward = 0;
  bool is_dead = true;
};

/// Groups of which all rewards are equal, and means.
void summarise(IndexedStep& step) {
  std::unordered_map<int64_t, GroupSeen> groups;
  double sum = 0;
  int64_t num_rewards = 0;
  for (const SampleEntry& entry : step.entries) {
    GroupSeen& group = groups[entry.group];
    if (group.num_samples++ == 0) group.reward = entry.reward;
    if (!entry.has_reward() || entry.reward != group.reward) group.is_dead = false;
    if (!entry.has_reward()) continue;
    sum += entry.reward;
    ++num_rewards;
  }
  for (SampleEntry& entry : step.entries) {
    const GroupSeen& group = groups[entry.group];
    entry.is_in_dead_group = group.is_dead && group.num_samples > 1;
  }
  step.num_groups = static_cast<int64_t>(groups.size());
  step.num_dead_groups = std::ranges::count_if(groups, [](const auto& group) {
    return group.second.is_dead && group.second.num_samples > 1;
  });
  step.mean_reward = num_rewards > 0 ? sum / static_cast<double>(num_rewards)
                                     : std::numeric_limits<double>::quiet_NaN();
}

bool is_same_file(const fs::path& path, uint64_t size, fs::file_time_type time) {
  std::error_code gone;
  return fs::file_size(path, gone) == size && !gone && fs::last_write_time(path, gone) == time &&
         !gone;
}

}  // namespace

IndexedStep index_step(const fs::path& path, int64_t step, std::string_view reward_key) {
  IndexedStep out{.step = step, .path = path};
  std::error_code gone;
  out.size_bytes = fs::file_size(path, gone);
  if (!gone) out.time = fs::last_write_time(path, gone);
  std::ifstream file(path, std::ios::binary);
  if (gone || !file) {
    out.size_bytes = 0;
    return out;
  }
  std::string line;
  for (uint64_t offset = 0; std::getline(file, line); offset += line.size() + 1) {
    if (line.empty()) continue;
    std::optional<SampleEntry> entry;
    if (line.size() <= kLongestLine) entry = read_entry(line, reward_key);
    if (!entry) {
      ++out.num_bad_lines;
      continue;
    }
    entry->offset = offset;
    out.entries.push_back(*entry);
  }
  out.entries.shrink_to_fit();
  summarise(out);
  return out;
}

std::string line_of(const IndexedStep& step, const SampleEntry& entry) {
  if (!is_same_file(step.path, step.size_bytes, step.time)) return "";
  std::ifstream file(step.path, std::ios::binary);
  std::string line(entry.bytes, '\0');
  file.seekg(static_cast<std::streamoff>(entry.offset));
  file.read(line.data(), static_cast<std::streamsize>(line.size()));
  return file.gcount() == static_cast<std::streamsize>(line.size()) ? line : std::string();
}

SampleIndex::SampleIndex(fs::path folder, IndexBudget& budget)
    : folder_(std::move(folder)), budget_(budget) {}

SampleIndex::~SampleIndex() {
  const std::lock_guard lock(mutex_);
  for (auto& [step, slot] : slots_) drop(slot);
}

void SampleIndex::drop(Slot& slot) {
  if (!slot.index) return;
  budget_.used -= slot.index->entries.size();
  slot.index = nullptr;
  ++version_;
}

std::string SampleIndex::reward_key() {
  std::vector<std::string> ignored;
  return report::text_flag(report::read_run_record(folder_ / "run.json", ignored), "--reward-key");
}

void SampleIndex::refresh() {
  const std::lock_guard refreshing(refresh_);
  if (steady_clock::now() < due_) return;
  due_ = steady_clock::now() + kFresh;
  std::vector<report::RolloutFile> files;
  try {
    files = report::rollout_files(folder_ / "rollouts");
  } catch (const fs::filesystem_error&) {
    return;  // a file went while the folder was listed; the next look sees what is there
  }
  std::map<int64_t, Slot> found;
  for (const report::RolloutFile& file : files) {
    std::error_code gone;
    const fs::file_time_type time = fs::last_write_time(file.path, gone);
    if (!gone) found[file.step] = {.path = file.path, .size_bytes = file.size_bytes, .time = time};
  }
  const std::lock_guard lock(mutex_);
  for (auto& [step, slot] : found) {
    const auto old = slots_.find(step);
    if (old == slots_.end()) continue;
    Slot& before = old->second;
    if (before.path == slot.path && before.size_bytes == slot.size_bytes &&
        before.time == slot.time) {
      slot.index = std::exchange(before.index, nullptr);
      slot.last_use = before.last_use;
    }
  }
  for (auto& [step, slot] : slots_) drop(slot);
  slots_ = std::move(found);
}

bool SampleIndex::make_room(std::size_t entries, bool forgets) {
  while (budget_.used + entries > budget_.max_entries) {
    if (!forgets) return false;
    Slot* oldest = nullptr;
    for (auto& [step, slot] : slots_)
      if (slot.index && (oldest == nullptr || slot.last_use < oldest->last_use)) oldest = &slot;
    if (oldest == nullptr) return true;  // others have it all; one step more does no harm
    drop(*oldest);
  }
  return true;
}

SampleIndex::Step SampleIndex::put(int64_t step, IndexedStep indexed, bool forgets) {
  auto made = std::make_shared<const IndexedStep>(std::move(indexed));
  const std::lock_guard lock(mutex_);
  const auto found = slots_.find(step);
  if (found == slots_.end()) return made;
  Slot& slot = found->second;
  if (slot.index || slot.size_bytes != made->size_bytes || slot.time != made->time)
    return slot.index ? slot.index : made;
  if (!make_room(made->entries.size(), forgets)) return made;
  slot.index = made;
  slot.last_use = ++budget_.clock;
  budget_.used += made->entries.size();
  ++version_;
  return made;
}

bool SampleIndex::index_one() {
  refresh();
  fs::path path;
  int64_t step = -1;
  {
    const std::lock_guard lock(mutex_);
    if (budget_.used >= budget_.max_entries) return false;
    const auto missing = std::find_if(slots_.rbegin(), slots_.rend(),
                                      [](const auto& slot) { return !slot.second.index; });
    if (missing == slots_.rend()) return false;
    step = missing->first;
    path = missing->second.path;
  }
  const uint64_t before = version_;
  put(step, index_step(path, step, reward_key()), false);
  return version_ != before;  // else it did not fit, or was replaced meanwhile: later
}

SampleIndex::Step SampleIndex::step(int64_t step) {
  refresh();
  fs::path path;
  {
    const std::lock_guard lock(mutex_);
    const auto found = slots_.find(step);
    if (found == slots_.end()) return nullptr;
    found->second.last_use = ++budget_.clock;
    if (found->second.index) return found->second.index;
    path = found->second.path;
  }
  return put(step, index_step(path, step, reward_key()), true);
}

std::vector<SampleIndex::Step> SampleIndex::steps() {
  refresh();
  const std::lock_guard lock(mutex_);
  std::vector<Step> out;
  for (const auto& [step, slot] : slots_)
    if (slot.index) out.push_back(slot.index);
  return out;
}

std::vector<int64_t> SampleIndex::known_steps() {
  refresh();
  const std::lock_guard lock(mutex_);
  std::vector<int64_t> out;
  for (const auto& [step, slot] : slots_) out.push_back(step);
  return out;
}

}  // namespace slime::view
