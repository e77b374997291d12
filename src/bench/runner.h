#pragma once

/// `slime bench NAME [FLAGS]`: NAME is a measurement, a description of bench/measurements.json, or a
/// workload of bench/gpu/workloads.json.

#include "bench/arguments.h"

namespace slime::bench {

/// The exit code. Throws ConfigError for a name that is none of them, with the nearest one.
int run(Arguments arguments);

}  // namespace slime::bench
