#pragma once

/// Samples as JSON-lines files, one file per rollout step: for the report, for
/// --save-debug-rollout-data, and back.
///
/// A line is a sample (core/sample.h, to_json); those for the report also have "train_log_probs" and
/// "token_texts". A number that follows from a sample is written here, not stored in it. The report's page
/// shows the keys that report_rollouts.cpp chooses.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "core/sample.h"

namespace slime::report {

/// What the report shows beside a sample.
struct ReportExtras {
  std::function<std::vector<float>(const Sample&)> train_log_probs;    // empty vector: not known
  std::function<std::vector<std::string>(const Sample&)> token_texts;  // of the response tokens
};

/// Writes under a temporary name, then renames: readers see whole files. Throws ConfigError when it
/// cannot.
void write_samples(const std::filesystem::path& path, std::span<const Group> groups,
                   const ReportExtras& extras = {});

/// Reads such a file, or an archive (report/rollout_archive.h), back into groups, in order of their prompts. Throws ConfigError naming file
/// and line.
std::vector<Group> read_samples(const std::filesystem::path& path);

/// Replaces {rollout_id}, and {rollout_id:06d} with leading zeros, in a path the user gave.
std::filesystem::path numbered_path(const std::string& pattern, int64_t rollout_id);

}  // namespace slime::report
