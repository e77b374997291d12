#pragma once

/// Measurements of the command `slime train`, in a process of its own. `size`: of the shape
/// qwen3-SIZE.

#include <string>

#include "cli/bench_options.h"

namespace slime::cli {

int first_step(const std::string& name, std::string size, Arguments arguments);
int grpo_command(const std::string& name, std::string size, Arguments arguments);
int train_forms(const std::string& name, std::string size, Arguments arguments);

}  // namespace slime::cli
