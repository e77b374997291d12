#pragma once

/// The measurements of `slime bench`, each a function that parses its flags, measures and prints JSON
/// lines.

#include <span>
#include <string>

#include "bench/arguments.h"

namespace slime::bench {

struct Measurement {
  const char* name;
  const char* summary;
  /// `name`: what was asked for, of the printed lines. `arguments`: those after it. The exit code;
  /// throws ConfigError for what cannot be measured here.
  int (*run)(const std::string& name, Arguments arguments);
};

/// All of them, by name.
std::span<const Measurement> measurements();

}  // namespace slime::bench
