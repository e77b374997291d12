#include "cli/bench_turns.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <vector>

#include "cli/json_lines.h"
#include "cli/options.h"
#include "core/clock.h"
#include "core/error.h"
#include "engine/engine.h"
#include "engine/workload.h"
#include "kernels/gpu/gpu.h"

namespace slime::cli {
namespace {

constexpr double kTurnsWeightBound = 1e-3;  // of the made-up weights
constexpr double kGibibyte = 1 << 30;

struct TurnsOptions {
  std::string model = "qwen3-4b";
  std::string file = "bench/gpu/workloads.json";
  double kv_cache_gb = 80;  // 10^9 bytes
  int repeats = 5;
};

/// A model's shape with made-up weights, and an engine over it.
struct Served {
  explicit Served(const TurnsOptions& options) : network(make_network(options)) {
    engine::EngineConfig config;
    config.max_running_requests = 64;
    config.max_prefill_tokens = 8192;
    config.context_length = 4096;
    config.kv_cache_bytes = static_cast<int64_t>(options.kv_cache_gb * 1e9);
    engine = std::make_unique<engine::Engine>(*network, config, clock);
  }
  static std::unique_ptr<model::Network> make_network(const TurnsOptions& options) {
    const engine::WorkloadFile file = engine::read_workloads(options.file);
    const auto shape = file.models.find(options.model);
    if (shape == file.models.end())
      throw ConfigError(
          fmt::format("--model {}: {} has none of this name", options.model, options.file));
    return model::make_uniform_network(model::parse_model_config(shape->second, options.model),
                                       model::Precision::on_gpu("bfloat16"), kTurnsWeightBound);
  }

  /// Thirty-two greedy continuations at once, of 24 tokens each.
  std::vector<std::vector<TokenId>> generate() {
    constexpr int kRequests = 32;
    std::vector<std::vector<TokenId>> out(kRequests);
    std::mutex mutex;
    std::condition_variable changed;
    int left = kRequests;
    for (int i = 0; i < kRequests; ++i) {
      engine::GenerateRequest request;
      for (int t = 0; t < 64; ++t)
        request.input_ids.push_back(static_cast<TokenId>((i * 977 + t * 131) % 50000));
      request.sampling.max_new_tokens = 24;
      request.sampling.temperature = 0;
      request.sampling.ignore_eos = true;
      request.stream_interval = 0;
      engine->submit(std::move(request), [&, i](engine::GenerateUpdate update) {
        const std::lock_guard lock(mutex);
        out[i] = std::move(update.output_ids);
        if (--left == 0) changed.notify_one();
      });
    }
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return left == 0; });
    return out;
  }

  SystemClock clock;
  std::unique_ptr<model::Network> network;
  std::unique_ptr<engine::Engine> engine;
};

double median(std::vector<double> numbers) {
  std::sort(numbers.begin(), numbers.end());
  return numbers[numbers.size() / 2];
}

/// Nothing when the options ended the command.
std::optional<int> parse(CLI::App& app, TurnsOptions& options,
                         std::span<const std::string> arguments) {
  app.add_option("--model", options.model, "A shape in the file of workloads")
      ->capture_default_str();
  app.add_option("--workloads-file", options.file, "Where the shape is")->capture_default_str();
  app.add_option("--kv-cache-gb", options.kv_cache_gb, "Size of the cache, in 10^9 bytes")
      ->capture_default_str()
      ->check(CLI::Range(0.1, 1000.0));
  app.add_option("--repeats", options.repeats, "The median counts")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  return parse_options(app, arguments);
}

}  // namespace

int bench_hand_over(std::span<const std::string> arguments) {
  TurnsOptions options;
  options.kv_cache_gb = 40;
  CLI::App app("New weights to the engine of the same GPU.", "slime bench hand-over");
  if (const auto exit_code = parse(app, options, arguments)) return *exit_code;
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
                   {"model", options.model},
                   {"milliseconds", json::value_from(milliseconds)},
                   {"gpu", kernels::opened_gpu().description()}});
  return 0;
}

int bench_sleep_wake(std::span<const std::string> arguments) {
  TurnsOptions options;
  CLI::App app("Keys and values give their memory back and take it again.",
               "slime bench sleep-wake");
  if (const auto exit_code = parse(app, options, arguments)) return *exit_code;
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
                   {"model", options.model},
                   {"seconds", json::value_from(both)},
                   {"gpu", gpu.description()}});
  return 0;
}

}  // namespace slime::cli
