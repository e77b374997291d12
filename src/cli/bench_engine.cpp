#include "cli/bench_engine.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "core/error.h"
#include "core/json.h"
#include "engine/benchmark.h"

namespace slime::cli {
int bench_engine(std::span<const std::string> arguments) {
  CLI::App app("Measure the rollout engine on this machine; JSON to standard output.",
               "slime bench engine");
  std::string model;
  std::string dtype = "bfloat16";
  int threads = 0;
  engine::EngineConfig config;
  engine::BenchmarkConfig bench;
  app.add_option("--model", model, "Model directory")->required();
  app.add_option("--dtype", dtype, "bfloat16, float16 or float32")->capture_default_str();
  app.add_option("--kv-cache-dtype", config.kv_cache_dtype, "auto, bfloat16 or float32")
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
  app.add_option("--threads", threads, "Threads; 0: all cores")->capture_default_str();
  std::vector<std::string> words(arguments.rbegin(), arguments.rend());
  try {
    app.parse(std::move(words));
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  if (threads > 0) at::set_num_threads(threads);
  config.max_running_requests = std::max(config.max_running_requests, bench.num_requests);
  const SystemClock clock;
  const Clock::TimePoint start = clock.now();
  const auto network = model::load_network(model, model::Precision::of(dtype));
  const double load_seconds = seconds_between(start, clock.now());
  engine::Engine engine(*network, config, clock);
  if (bench.input_length + bench.output_length > engine.max_request_tokens()) {
    throw ConfigError(
        fmt::format("--input-len {} and --output-len {} exceed the {} tokens a request can have",
                    bench.input_length, bench.output_length, engine.max_request_tokens()));
  }
  json::object result = engine::run_benchmark(engine, *network, clock, bench);
  result["load_seconds"] = load_seconds;
  fmt::print("{}", to_pretty_json(result));
  return 0;
}

}  // namespace slime::cli
