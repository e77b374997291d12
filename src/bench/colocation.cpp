/// What it costs that trainer and engine are colocated on one GPU and alternate.

#include <ATen/ATen.h>
#include <utility>
#include <vector>

#include "bench/flags.h"
#include "bench/generate_all.h"
#include "bench/harness.h"
#include "core/clock.h"
#include "core/error.h"
#include "core/json_lines.h"
#include "engine/engine.h"
#include "kernels/gpu/gpu.h"

namespace slime::bench {
namespace {

struct ColocationOptions {
  ShapeOptions shape;
  double kv_cache_gb = 80;  // 10^9 bytes
  int repeats = 5;          // the median counts
};

constexpr double kGibibyte = 1 << 30;

/// A model's shape with made-up weights, and an engine over it.
struct Served {
  explicit Served(const ColocationOptions& options)
      : network(make_up_network(read_shape(options.shape), kGenerationWeightBound)) {
    engine::EngineConfig config;
    config.max_running_requests = 64;
    config.max_prefill_tokens = 8192;
    config.context_length = 4096;
    config.kv_cache_bytes = static_cast<int64_t>(options.kv_cache_gb * 1e9);
    engine = std::make_unique<engine::Engine>(*network, config, clock);
  }

  /// Thirty-two greedy continuations at once, of 24 tokens each.
  std::vector<std::vector<TokenId>> generate() {
    std::vector<engine::GenerateRequest> requests(32);
    for (std::size_t i = 0; i < requests.size(); ++i) {
      for (std::size_t t = 0; t < 64; ++t)
        requests[i].input_ids.push_back(static_cast<TokenId>((i * 977 + t * 131) % 50000));
      requests[i].sampling.max_new_tokens = 24;
      requests[i].sampling.temperature = 0;
      requests[i].sampling.ignore_eos = true;
    }
    std::vector<std::vector<TokenId>> out;
    for (engine::GenerateUpdate& result : generate_all(*engine, std::move(requests)))
      out.push_back(std::move(result.output_ids));
    return out;
  }

  SystemClock clock;
  std::unique_ptr<model::Network> network;
  std::unique_ptr<engine::Engine> engine;
};

void measure_hand_over(const ColocationOptions& options) {
  kernels::open_gpu();
  Served served(options);
  served.generate();
  const void* weights = served.network->weights().flat().const_data_ptr();
  std::vector<double> milliseconds;
  for (int i = 0; i < options.repeats; ++i) {
    served.generate();  // the prefix tree has something to forget
    engine::or_throw(served.engine->pause(engine::PauseMode::kRetract));
    Tensor flat = served.network->weights().flat();
    flat.mul_(1.001);  // the trainer's update
    flat[0].item();    // sync: it is done
    const auto start = served.clock.now();
    engine::or_throw(served.engine->update_weights({.version = i + 1}));
    engine::or_throw(served.engine->resume());
    milliseconds.push_back(1e3 * seconds_between(start, served.clock.now()));
  }
  const bool is_shared = served.network->weights().flat().const_data_ptr() == weights;
  write_json_line({{"name", "hand-over"},
                   {"value", median(milliseconds)},
                   {"unit", "ms"},
                   {"floor", 0},
                   {"bytes_moved", is_shared ? 0 : served.network->weights().flat().nbytes()},
                   {"model", options.shape.model},
                   {"milliseconds", json::value_from(milliseconds)},
                   {"gpu", kernels::opened_gpu().description()}});
}

void measure_sleep_wake(const ColocationOptions& options) {
  kernels::Gpu& gpu = kernels::open_gpu();
  Served served(options);
  served.generate();
  const auto expected = served.generate();  // by recorded steps
  std::vector<double> both, sleeps, wakes;
  int64_t given_back = 0;
  for (int i = 0; i < options.repeats; ++i) {
    const int64_t before = gpu.memory_use().free;
    const auto start = served.clock.now();
    engine::or_throw(served.engine->sleep());
    const auto asleep = served.clock.now();
    given_back = gpu.memory_use().free - before;
    const auto called = served.clock.now();
    engine::or_throw(served.engine->wake());
    const auto awake = served.clock.now();
    sleeps.push_back(seconds_between(start, asleep));
    wakes.push_back(seconds_between(called, awake));
    both.push_back(sleeps.back() + wakes.back());
    if (served.generate() != expected)
      throw ConfigError("sleep-wake: the engine draws other tokens after it slept");
  }
  write_json_line({{"name", "sleep-wake"},
                   {"value", median(both)},
                   {"unit", "s"},
                   {"floor", 0},
                   {"sleep_seconds", median(sleeps)},
                   {"wake_seconds", median(wakes)},
                   {"given_back_gib", static_cast<double>(given_back) / kGibibyte},
                   {"model", options.shape.model},
                   {"seconds", json::value_from(both)},
                   {"gpu", gpu.description()}});
}

void add_flags(Flags& flags, ColocationOptions& options) {
  flags.shape(options.shape);
  flags.range("--kv-cache-gb", options.kv_cache_gb, 0.1, 1000.0,
              "Size of the cache, in 10^9 bytes");
  flags.repeats(options.repeats, "The median counts");
}

}  // namespace

int hand_over(const std::string& name, Arguments arguments) {
  ColocationOptions options{.kv_cache_gb = 40};
  Flags flags("New weights to the engine of the same GPU.", name);
  add_flags(flags, options);
  if (const auto exit_code = flags.take(arguments)) return *exit_code;
  measure_hand_over(options);
  return 0;
}

int sleep_wake(const std::string& name, Arguments arguments) {
  ColocationOptions options;
  Flags flags("Keys and values give their memory back and take it again.", name);
  add_flags(flags, options);
  if (const auto exit_code = flags.take(arguments)) return *exit_code;
  measure_sleep_wake(options);
  return 0;
}

}  // namespace slime::bench
