#pragma once

/// The start of a run without the run, for --dry-run: what it would find before its first token.
///
/// Flags are translated, the first rows of each data set rendered and tokenised, the headers of the
/// weight files compared with config.json, functions of the user's imported and libraries loaded.
/// No weight is read, nothing is written but logs in a temporary folder.

#include <string>
#include <vector>

#include "config/parse_flags.h"

namespace slime::loop {

struct TrialStart {
  std::vector<std::string> problems;  // a run would refuse
  /// What this machine lacks and the machine of the run may have: files, devices, hosts.
  std::vector<std::string> absent;
  bool imported_functions = false;
};

/// Completes and validates the flags too; notes are added to `flags.warnings`.
TrialStart try_start(config::ParsedFlags& flags);

}  // namespace slime::loop
