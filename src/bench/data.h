#pragma once

/// How long a prompt file takes to load as `slime train` loads it (rows, chat template, tokens),
/// and how much memory it keeps.

#include "config/run_config.h"

namespace slime::bench {

/// Of one file in `prompt_data`, with the model's tokenizer. Prints one JSON line: rows, seconds,
/// bytes of the file, peak memory over what the process had before.
void measure_data(const config::RunConfig& config);

}  // namespace slime::bench
