#include "buffer/rollout_log.h"

#include <fmt/format.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <limits>

#include "core/crc32c.h"
#include "core/error.h"
#include "core/field_reader.h"
#include "core/json.h"

namespace slime::buffer {
namespace {

constexpr std::size_t kDigits = 8;
constexpr int64_t kLargestNumber = std::numeric_limits<int64_t>::max() / 4;
constexpr int64_t kLargestGroup = 1'000'000;

struct ContentOf {
  std::string operator()(const RolloutBegun& begun) const {
    return "b " + json_text(json::object{{"task_type", begun.task_type},
                                         {"group_size", begun.group_size}});
  }
  std::string operator()(const RolloutWritten& written) const {
    return fmt::format("w {} {}", written.group, written.item.text);
  }
  std::string operator()(const RolloutTaken& taken) const {
    return "t " + json_text(json::object{{"groups", json::value_from(taken.groups)},
                                         {"request_id", taken.request_id}});
  }
  std::string operator()(const RolloutRestored& restored) const {
    return "r " + json_text(json::object{{"next_number", restored.next_number},
                                         {"num_given", restored.num_given},
                                         {"uids", json::value_from(restored.uids)}});
  }
};

std::optional<RolloutWritten> written_from(std::string_view text) {
  int64_t group = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), group);
  const auto length = static_cast<std::size_t>(end - text.data());
  if (error != std::errc() || group < 0 || group > kLargestNumber || length >= text.size() ||
      text[length] != ' ')
    return std::nullopt;
  auto item = parse_rollout_item(text.substr(length + 1));
  if (!item) return std::nullopt;
  return RolloutWritten{.group = group, .item = std::move(*item)};
}

std::optional<std::vector<uint64_t>> uids_from(const json::value* list) {
  if (list == nullptr || !list->is_array()) return std::nullopt;
  std::vector<uint64_t> uids;
  for (const json::value& value : list->get_array()) {
    if (value.is_uint64()) {
      uids.push_back(value.get_uint64());
    } else if (value.is_int64() && value.get_int64() >= 0) {
      uids.push_back(static_cast<uint64_t>(value.get_int64()));
    } else {
      return std::nullopt;
    }
  }
  return uids;
}

std::optional<RolloutRecord> record_from(char kind, const json::object& object) {
  std::vector<std::string> problems;
  const FieldReader fields = FieldReader(object, "", problems).required();
  std::optional<RolloutRecord> record;
  if (kind == 'b') {
    record = RolloutBegun{.task_type = fields.text("task_type").value_or(""),
                          .group_size = fields.integer("group_size", 1, kLargestGroup).value_or(1)};
  } else if (kind == 't') {
    record = RolloutTaken{.groups = fields.numbers<int64_t>("groups"),
                          .request_id = fields.text("request_id").value_or("")};
  } else if (kind == 'r') {
    auto uids = uids_from(object.if_contains("uids"));
    if (!uids) return std::nullopt;
    record =
        RolloutRestored{.next_number = fields.integer("next_number", 0, kLargestNumber).value_or(0),
                        .num_given = fields.integer("num_given", 0, kLargestNumber).value_or(0),
                        .uids = std::move(*uids)};
  }
  if (!problems.empty()) return std::nullopt;
  return record;
}

/// False when the record cannot be one of this log.
struct Apply {
  RolloutGroups& groups;

  bool operator()(RolloutBegun& begun) const {
    if (!groups.may_begin(begun.task_type, begun.group_size)) return false;
    groups.begin(std::move(begun.task_type), begun.group_size);
    return true;
  }
  bool operator()(RolloutWritten& written) const {
    return groups.write(std::move(written.item), written.group) == written.group;
  }
  bool operator()(const RolloutTaken& taken) const {
    return groups.take(taken.groups, taken.request_id).has_value();
  }
  bool operator()(const RolloutRestored& restored) const {
    groups.restore(restored.next_number, restored.num_given, restored.uids);
    return true;
  }
};

}  // namespace

std::string to_rollout_line(const RolloutRecord& record) {
  const std::string content = std::visit(ContentOf{}, record);
  return fmt::format("{:08x} {}\n", crc32c(content), content);
}

std::optional<RolloutRecord> parse_rollout_line(std::string_view line) {
  if (line.size() < kDigits + 4 || line[kDigits] != ' ' || line[kDigits + 2] != ' ')
    return std::nullopt;
  const std::string_view content = line.substr(kDigits + 1);
  if (fmt::format("{:08x}", crc32c(content)) != line.substr(0, kDigits)) return std::nullopt;
  const std::string_view text = content.substr(2);
  if (content[0] == 'w') return written_from(text);
  const std::optional<json::value> value = try_parse_json(text);
  if (!value || !value->is_object()) return std::nullopt;
  return record_from(content[0], value->get_object());
}

RolloutReplay replay_rollout_log(const std::filesystem::path& path, RolloutGroups& groups) {
  std::ifstream file(path, std::ios::binary);
  if (!file)
    throw ConfigError(fmt::format("{}: cannot be read: {}", path.string(), std::strerror(errno)));
  RolloutReplay replay;
  bool is_torn = false;
  for (std::string line; std::getline(file, line);) {
    const bool has_end = !file.eof();
    replay.file_bytes += static_cast<int64_t>(line.size()) + (has_end ? 1 : 0);
    auto record = has_end ? parse_rollout_line(line) : std::nullopt;
    if (is_torn && record) {
      throw ConfigError(
          fmt::format("{}: is damaged at byte {}, with whole records behind it; give "
                      "a new --folder, or cut the file there to lose those",
                      path.string(), replay.whole_bytes));
    }
    if (!record) {
      is_torn = true;
      continue;
    }
    if (!std::visit(Apply{groups}, *record)) {
      throw ConfigError(fmt::format("{}: the record at byte {} does not follow from those before",
                                    path.string(), replay.whole_bytes));
    }
    replay.whole_bytes = replay.file_bytes;
  }
  if (file.bad())
    throw ConfigError(fmt::format("{}: read error at byte {}", path.string(), replay.file_bytes));
  return replay;
}

std::vector<RolloutRecord> records_of(const RolloutGroups& groups) {
  std::vector<RolloutRecord> records;
  int64_t num_kept = 0;
  for (const KeptAnswer& answer : groups.answers())
    num_kept += static_cast<int64_t>(answer.groups.size());
  records.emplace_back(
      RolloutRestored{.next_number = groups.next_number(),
                      .num_given = groups.num_given() - num_kept,
                      .uids = std::vector<uint64_t>(groups.uids().begin(), groups.uids().end())});
  records.emplace_back(
      RolloutBegun{.task_type = groups.task_type(), .group_size = groups.group_size()});
  const auto add_items = [&records](const RolloutGroup& group) {
    for (const RolloutItem& item : group.items)
      records.emplace_back(RolloutWritten{.group = group.number, .item = item});
  };
  for (const KeptAnswer& answer : groups.answers()) {
    RolloutTaken taken{.groups = {}, .request_id = answer.request_id};
    for (const RolloutGroup& group : answer.groups) {
      add_items(group);
      taken.groups.push_back(group.number);
    }
    records.emplace_back(std::move(taken));
  }
  for (const RolloutGroup* group : groups.waiting()) add_items(*group);
  return records;
}

}  // namespace slime::buffer
