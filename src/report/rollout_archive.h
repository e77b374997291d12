#pragma once

/// Archives of a rollout: PATH.straw.json, for --save-debug-rollout-data and back.
///
/// slime 0.4.0 writes such a name as a descriptor of a straw pool, whose form is that package's. Ours is a
/// descriptor beside its samples, which any JSON reader has:
///
///   x_7.straw.json    {"format": "slime.rollout", "version": 1, "rollout_id": 7, "evaluation": false,
///                      "data": "x_7.straw.jsonl", "bytes": 81245, "sha256": "...",
///                      "index": [[sample, group, offset, bytes], ...]}
///   x_7.straw.jsonl   one sample a line, as in all rollout files (report/rollout_files.h)
///
/// `offset` and `bytes` are of the sample's line in the data, so one sample is read without the others.

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "core/json.h"
#include "core/sample.h"

namespace slime::report {

bool has_archive_name(const std::filesystem::path& path);

/// The descriptor comes last, so that it never names data that are not whole.
void write_archive(const std::filesystem::path& path, int64_t rollout_id,
                   std::span<const Group> groups);

/// The object in a file that describes an archive, ours or another's; empty for other files.
json::object archive_descriptor(const std::filesystem::path& path);

/// The data of a descriptor of ours, whose size and checksum are right. Throws ConfigError that says
/// what it is for a descriptor of the original's.
std::filesystem::path data_of_archive(const std::filesystem::path& path,
                                      const json::object& descriptor);

}  // namespace slime::report
