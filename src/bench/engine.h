#pragma once

/// Generation on this machine: the engine alone, random prompts, all requests at once.

#include "bench/generation.h"
#include "bench/machine.h"
#include "engine/engine.h"

namespace slime::bench {

struct EngineOptions {
  ModelOptions model;
  engine::EngineConfig engine;
  GenerationLoad load;
};

/// Prints one JSON line: what bench/generation.h returns and the same run at the machine's rates.
void measure_engine(const EngineOptions& options);

}  // namespace slime::bench
