#pragma once

/// From the start of the process to the first token, with made-up weights on the GPU.

#include <string>

#include "bench/made_up_model.h"

namespace slime::bench {

struct StartOptions {
  std::string name;  // of the printed line
  ShapeOptions shape;
};

/// Prints one JSON line with the seconds of each phase.
void measure_start(const StartOptions& options);

}  // namespace slime::bench
