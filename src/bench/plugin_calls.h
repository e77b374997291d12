#pragma once

/// What a call of a user's Python function costs: rewards through plug-in hosts, as a run makes them.

#include <cstdint>
#include <string>

namespace slime::bench {

struct PluginOptions {
  std::string python = "python3";
  int hosts = 1;
  int64_t calls = 50'000;         // at once, as behind a step of that many samples
  int64_t response_tokens = 256;  // of each sample; the prompt has as many
  int repeats = 3;                // the best counts
};

/// `async def reward(args, sample)` that returns a constant. Prints one JSON line: calls per second,
/// microseconds per call. Throws ConfigError when there is no such interpreter.
void measure_plugin_calls(const PluginOptions& options);

}  // namespace slime::bench
