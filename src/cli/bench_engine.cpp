#include "cli/bench_engine.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "cli/bench_model.h"
#include "cli/options.h"
#include "core/error.h"
#include "core/json.h"
#include "engine/benchmark.h"

namespace slime::cli {
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

int bench_engine(std::span<const std::string> arguments) {
  CLI::App app("Measure the rollout engine on this machine; JSON to standard output.",
               "slime bench engine");
  BenchModel model;
  engine::EngineConfig config;
  engine::BenchmarkConfig bench;
  model.add_options(app);
  app.add_option("--kv-cache-dtype", config.kv_cache_dtype,
                 "auto, bfloat16, float32 or (GPU) fp8_e4m3")
      ->capture_default_str();
  app.add_option("--requests", bench.num_requests, "Requests at once")
      ->capture_default_str()
      ->check(CLI::Range(1, 65536));
  app.add_option("--input-len", bench.input_length, "Prompt tokens of each")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option("--output-len", bench.output_length, "Generated tokens of each")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option("--prompts", bench.num_groups, "Distinct prompts; 0: one per request")
      ->capture_default_str();
  app.add_option("--rounds", bench.rounds, "Rounds; the fastest counts")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  app.add_option("--chunked-prefill-size", config.max_prefill_tokens, "Prompt tokens per step")
      ->capture_default_str();
  if (const auto exit_code = parse_options(app, arguments)) return *exit_code;
  config.max_running_requests = std::max(config.max_running_requests, bench.num_requests);
  const SystemClock clock;
  const Clock::TimePoint start = clock.now();
  const auto network = model.load();
  const double load_seconds = seconds_between(start, clock.now());
  engine::Engine engine(*network, config, clock);
  if (bench.input_length + bench.output_length > engine.max_request_tokens()) {
    throw ConfigError(
        fmt::format("--input-len {} and --output-len {} exceed the {} tokens a request can have",
                    bench.input_length, bench.output_length, engine.max_request_tokens()));
  }
  json::object result = engine::run_benchmark(engine, *network, clock, bench);
  result["load_seconds"] = load_seconds;
  result["floor"] = floor_of(result, measure_machine(*network));
  fmt::print("{}\n", json::serialize(result));
  return 0;
}

}  // namespace slime::cli
