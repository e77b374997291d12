#pragma once

/// The log of a rollout buffer: what its groups are made of again after a restart.
///
/// One record is one line: the CRC-32C of what follows it, a letter, and its content.
///
///   5b2c11f0 b {"task_type":"math","group_size":8}
///   0d41b2aa w 17 {"uid":"a1","instance_id":7,"reward":1.0}
///   9e03c7d1 t {"groups":[17,18],"request_id":"run:4"}
///   77d0c9e4 r {"next_number":19,"num_given":2,"uids":[1,2]}

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "buffer/rollout_groups.h"

namespace slime::buffer {

struct RolloutBegun {
  std::string task_type;
  int64_t group_size = 0;
};
struct RolloutWritten {
  int64_t group = 0;
  RolloutItem item;
};
struct RolloutTaken {
  std::vector<int64_t> groups;
  std::string request_id;  // empty: none
};
/// What a log that was written anew begins with.
struct RolloutRestored {
  int64_t next_number = 0;
  int64_t num_given = 0;
  std::vector<uint64_t> uids;
};
using RolloutRecord = std::variant<RolloutBegun, RolloutWritten, RolloutTaken, RolloutRestored>;

/// With its checksum and the end of the line.
std::string to_rollout_line(const RolloutRecord& record);

/// `line` is without its end. Nothing for one that this program did not write.
std::optional<RolloutRecord> parse_rollout_line(std::string_view line);

struct RolloutReplay {
  int64_t whole_bytes = 0;  // what follows is the torn end of a record that nobody was told of
  int64_t file_bytes = 0;
};

/// Does to `groups` what the log says. Throws ConfigError for a file that cannot be read, or is
/// damaged before its end.
RolloutReplay replay_rollout_log(const std::filesystem::path& path, RolloutGroups& groups);

/// The records of a log that leads to `groups` as they are.
std::vector<RolloutRecord> records_of(const RolloutGroups& groups);

}  // namespace slime::buffer
