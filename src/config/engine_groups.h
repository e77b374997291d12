#pragma once

/// Groups of engines with settings of their own: --sglang-config, in the original's form.
///
///   sglang:
///     - name: default
///       server_groups:
///         - {worker_type: regular, num_gpus: 2, overrides: {max_running_requests: 64}}
///         - {worker_type: regular, num_gpus: 1}

#include "config/parse_flags.h"
#include "config/problems.h"

namespace slime::config {

/// Reads the file: sizes and number of the engines go into the flags that say them, what all groups
/// override into the flags themselves, the rest into `engine_groups`. Before the rules of engines. What
/// the engines of a run cannot be (pairs of prefill and decode, several models) is a problem by its name.
void apply_engine_groups(ParsedFlags& flags, Problems& problems);

/// Configuration of engine `index`: the run's, with the overrides of its group.
RunConfig config_of_engine(const RunConfig& config, int64_t index);

}  // namespace slime::config
