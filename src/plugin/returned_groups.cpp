#include "plugin/returned_groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "core/version_runs.h"
#include "net/frame_channel.h"
#include "setup/scores.h"

namespace slime::plugin {
namespace {

using net::FrameError;

const json::object& as_sample(const json::value& record) {
  const json::object* sample = record.if_object();
  if (sample == nullptr) throw FrameError("a group is a list of samples");
  return *sample;
}

const json::object& first_sample(const json::value& member) {
  const json::array* parts = member.if_array();
  if (parts == nullptr) return as_sample(member);
  if (parts->empty()) throw FrameError("a list without a sample stands for one");
  return as_sample(parts->front());
}

std::optional<int64_t> number(const json::object& record, std::string_view name) {
  const json::value* value = record.if_contains(name);
  return value != nullptr && value->is_int64() ? std::optional(value->get_int64()) : std::nullopt;
}

/// Each member's place in its group: that of the sample that it came of, or the next free one.
std::vector<int64_t> places_of(const json::array& members, const Group& given) {
  std::vector<int64_t> places(members.size(), -1);
  std::set<int64_t> used;
  for (std::size_t i = 0; i < members.size(); ++i) {
    const auto index = number(first_sample(members[i]), "index");
    const auto known = std::ranges::find_if(
        given.samples, [&](const Sample& sample) { return index == sample.ordinal; });
    if (known != given.samples.end() && used.insert(known->index_in_group).second)
      places[i] = known->index_in_group;
  }
  int64_t free = 0;
  for (int64_t& place : places) {
    while (place < 0 && used.contains(free)) ++free;
    if (place < 0) used.insert(place = free);
  }
  return places;
}

void set_versions(Sample& sample, WeightVersion version) {
  if (!sample.versions.empty()) return;
  for (std::size_t i = 0; i < static_cast<std::size_t>(sample.response_length()); ++i) {
    const bool is_sampled = sample.loss_mask.empty() || sample.loss_mask[i] == 1;
    append_run(sample.versions, {is_sampled ? version : kNoVersion, 1});
  }
}

/// Sampled to its end, as far as anybody knows, and scored.
void check_step_sample(Sample& sample, const StepLimits& limits) {
  if (sample.status == Status::kFailed) throw FrameError(sample.failure);
  if (sample.status != Status::kTruncated) sample.status = Status::kCompleted;
  check_sampled(sample, limits.samples);
  set_versions(sample, limits.version);
  if (!limits.needs_reward) return;
  if (sample.reward.is_null()) throw FrameError("Sample.reward is missing");
  if (const auto problem = setup::reward_problem(sample.reward, limits.reward_key))
    throw FrameError("Sample.reward: " + *problem);
}

void check_parts(const std::vector<Sample>& parts) {
  for (const Sample& part : parts) {
    if (part.rollout_id == parts.front().rollout_id) continue;
    throw FrameError(
        "parts of one execution have different rollout_ids; they need a common one, or none");
  }
}

}  // namespace

std::optional<int64_t> ordinal_of(const json::value& record) {
  if (record.is_object()) return number(record.get_object(), "group_index");
  const json::array* members = record.if_array();
  if (members == nullptr || members->empty()) return std::nullopt;
  const json::value* first = &members->front();
  if (const json::array* parts = first->if_array())
    first = parts->empty() ? nullptr : &parts->front();
  const json::object* sample = first == nullptr ? nullptr : first->if_object();
  return sample == nullptr ? std::nullopt : number(*sample, "group_index");
}

Group read_group(const json::value& record, const Columns& columns, const Group& given,
                 const StepLimits& limits) {
  if (const json::object* problem = record.if_object()) {
    const json::value* text = problem->if_contains("error");
    throw FrameError(text != nullptr && text->is_string() ? std::string(text->get_string())
                                                          : "a group is a list of samples");
  }
  const json::array* members = record.if_array();
  if (members == nullptr) throw FrameError("what a rollout function returns is a list of groups");
  if (members->empty()) throw FrameError("a group without samples");
  if (static_cast<int64_t>(members->size()) > limits.samples_per_prompt) {
    throw FrameError(fmt::format("a group of {} samples; --n-samples-per-prompt is {}",
                                 members->size(), limits.samples_per_prompt));
  }
  const std::vector<int64_t> places = places_of(*members, given);
  Group group{.ordinal = given.ordinal, .samples = {}};
  for (std::size_t i = 0; i < members->size(); ++i) {
    const json::value& member = (*members)[i];
    const auto place = std::ranges::find(given.samples, places[i], &Sample::index_in_group);
    Sample before;
    if (place != given.samples.end()) before = *place;
    before.index_in_group = places[i];
    std::vector<Sample> parts;
    const auto add = [&](const json::value& part) {
      parts.push_back(read_sample(as_sample(part), columns, before, limits.samples));
      check_step_sample(parts.back(), limits);
    };
    if (const json::array* list = member.if_array()) {
      for (const json::value& part : *list) add(part);
      if (list->empty()) throw FrameError("a list without a sample stands for one");
    } else {
      add(member);
    }
    check_parts(parts);
    std::ranges::move(parts, std::back_inserter(group.samples));
  }
  return group;
}

void name_executions(Group& group) {
  std::map<int64_t, int64_t> num_parts;
  for (const Sample& sample : group.samples) ++num_parts[sample.ordinal];
  for (Sample& sample : group.samples) {
    if (num_parts[sample.ordinal] > 1 && !sample.rollout_id) sample.rollout_id = sample.ordinal;
  }
}

}  // namespace slime::plugin
