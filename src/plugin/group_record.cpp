#include "plugin/group_record.h"

#include <fmt/format.h>

#include <string>
#include <vector>

#include "net/frame_channel.h"
#include "plugin/sample_record.h"

namespace slime::plugin {
namespace {

using net::FrameError;

constexpr std::string_view kAt = "at";

/// `at` is the way to a sample: its place in the group, behind that of the group where it is one of
/// several.
Sample& sample_at(const json::array& at, std::span<Group> groups, bool is_one_group) {
  const auto place = [&at](std::size_t level, std::size_t size) {
    const int64_t index = at[level].is_int64() ? at[level].get_int64() : -1;
    if (index < 0 || static_cast<std::size_t>(index) >= size)
      throw FrameError(
          fmt::format("a change of sample {}, which is not there", json_text(json::value(at))));
    return static_cast<std::size_t>(index);
  };
  const std::size_t depth = is_one_group ? 1 : 2;
  if (at.size() != depth) throw FrameError("a change of something that is no sample");
  Group& group = groups[is_one_group ? 0 : place(0, groups.size())];
  return group.samples[place(depth - 1, group.samples.size())];
}

void take(const Answer& answer, std::string_view who, std::span<Group> groups, bool is_one_group) {
  const json::value* changes = answer.value.if_contains("changes");
  if (changes == nullptr) return;
  if (!changes->is_array()) throw FrameError("the plug-in host answered with odd changes");
  for (const json::value& each : changes->get_array()) {
    const json::object* change = each.if_object();
    const json::value* at = change == nullptr ? nullptr : change->if_contains(kAt);
    if (at == nullptr || !at->is_array()) throw FrameError("a change of nothing");
    json::object fields = *change;
    fields.erase(kAt);
    Sample& sample = sample_at(at->get_array(), groups, is_one_group);
    apply_changes(fields, answer.columns, who, sample);
  }
}

}  // namespace

json::array to_records(const Group& group, Columns& columns) {
  json::array records;
  for (const Sample& sample : group.samples) records.push_back(to_record(sample, columns));
  return records;
}

json::array to_records(std::span<const Group> groups, Columns& columns) {
  json::array records;
  for (const Group& group : groups) records.push_back(to_records(group, columns));
  return records;
}

void take_changes(const Answer& answer, std::string_view who, Group& group) {
  take(answer, who, {&group, 1}, true);
}

void take_changes(const Answer& answer, std::string_view who, std::span<Group> groups) {
  take(answer, who, groups, false);
}

}  // namespace slime::plugin
