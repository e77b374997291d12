#include "bench/engine.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "core/json_lines.h"

namespace slime::bench {
namespace {

/// The same run at the machine's rates: prefill computes, decoding reads or computes, whichever
/// takes longer.
json::object floor_of(const json::object& result, const MachineRates& rates) {
  const auto number = [&](const char* name) { return result.at(name).to_number<double>(); };
  const double prefill = number("prefill_flops") / rates.flops_per_second;
  const double step = std::max(number("decode_bytes") / rates.read_bytes_per_second,
                               number("decode_flops") / rates.flops_per_second);
  const double seconds = prefill + step * (number("output_length") - 1);
  json::object floor = to_json(rates);
  floor["prefill_seconds"] = prefill;
  floor["decode_step_ms"] = step * 1e3;
  floor["seconds"] = seconds;
  floor["reached"] = seconds / number("seconds");
  floor["decode_reached"] = step * 1e3 / number("decode_step_ms");
  return floor;
}

}  // namespace

void measure_engine(const EngineOptions& options) {
  engine::EngineConfig config = options.engine;
  const GenerationLoad& load = options.load;
  config.max_running_requests = std::max(config.max_running_requests, load.num_requests);
  const SystemClock clock;
  const Clock::TimePoint start = clock.now();
  const auto network = options.model.load();
  const double load_seconds = seconds_between(start, clock.now());
  engine::Engine engine(*network, config, clock);
  if (load.input_length + load.output_length > engine.max_request_tokens()) {
    throw ConfigError(
        fmt::format("--input-len {} and --output-len {} exceed the {} tokens a request can have",
                    load.input_length, load.output_length, engine.max_request_tokens()));
  }
  json::object result = run_generation(engine, *network, clock, load);
  result["load_seconds"] = load_seconds;
  result["floor"] = floor_of(result, measure_machine(*network));
  write_json_line(result);
}

}  // namespace slime::bench
