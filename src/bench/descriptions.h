#pragma once

/// Named measurements of bench/measurements.json: a measurement and its flags.

#include <optional>
#include <string>
#include <vector>

#include "bench/arguments.h"
#include "core/json.h"

namespace slime::bench {

/// "grpo-SIZE": {"measurement": "grpo-command", "model": "qwen3-SIZE", "prompts": 64, "log": true}.
/// Other keys than "measurement" are flags: a value, a list that is joined by commas, or true for a
/// flag without a value. A name with SIZE in it stands for all sizes, which are put in the values.
using Descriptions = json::object;

struct Described {
  std::string measurement;
  std::vector<std::string> flags;  // before those that are typed
};

/// "qwen3-SIZE" of "4b" is "qwen3-4b".
std::string with_size(std::string text, const std::string& size);

/// Throws ConfigError, with the path and the name, for a file of another form.
Descriptions read_descriptions(const std::string& path);

/// The description of `name`: exact, or the longest pattern that it fits. Flags that are among
/// `typed` are left out.
std::optional<Described> find_description(const Descriptions& descriptions, const std::string& name,
                                          Arguments typed);

}  // namespace slime::bench
