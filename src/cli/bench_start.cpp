#include "cli/bench_start.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <fstream>
#include <future>
#include <sstream>

#include "cli/json_lines.h"
#include "cli/options.h"
#include "core/clock.h"
#include "core/error.h"
#include "engine/engine.h"
#include "engine/workload.h"
#include "kernels/gpu/gpu.h"

namespace slime::cli {
namespace {

constexpr std::string_view kStartPrefix = "start-";
constexpr double kStartWeightBound = 1e-3;   // of the made-up weights
constexpr double kStartShareOfMemory = 0.8;  // of what the weights leave free, for the KV cache
constexpr int64_t kPromptTokens = 128;

/// Seconds since the system started this process, to a hundredth.
double process_age() {
  std::ifstream stat("/proc/self/stat"), uptime("/proc/uptime");
  std::string line;
  std::getline(stat, line);
  // The name in parentheses may hold spaces; the start is the twentieth word after it.
  std::istringstream words(line.substr(line.rfind(')') + 1));
  std::string word;
  for (int i = 0; i < 20; ++i) words >> word;
  double seconds_up = 0;
  uptime >> seconds_up;
  return seconds_up - std::stod(word) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

}  // namespace

int bench_start(std::span<const std::string> arguments) {
  const SystemClock clock;
  const auto begin = clock.now();
  const double before = process_age();
  const std::string name = arguments.front();
  std::string file_name = "bench/gpu/workloads.json";
  CLI::App app("From the start of the process to the first token.", "slime bench " + name);
  app.add_option("--workloads-file", file_name, "Where the model's shape is")
      ->capture_default_str();
  if (const auto exit_code = parse_options(app, arguments.subspan(1))) return *exit_code;
  const engine::WorkloadFile file = engine::read_workloads(file_name);
  const std::string model = "qwen3-" + name.substr(kStartPrefix.size());
  const auto shape = file.models.find(model);
  if (shape == file.models.end())
    throw ConfigError(fmt::format("{}: {} has no model \"{}\"", name, file_name, model));

  json::object parts{{"process", before}};
  auto since = clock.now();
  const auto lap = [&](const char* part) {
    const auto now = clock.now();
    parts[part] = seconds_between(since, now);
    since = now;
  };
  kernels::Gpu& gpu = kernels::open_gpu();
  lap("open_gpu");
  const auto network =
      model::make_uniform_network(model::parse_model_config(shape->second, model),
                                  model::Precision::on_gpu("bfloat16"), kStartWeightBound);
  lap("weights");
  engine::EngineConfig config;
  config.max_prefill_tokens = 8192;
  config.max_running_requests = 256;
  config.kv_cache_bytes =
      static_cast<int64_t>(kStartShareOfMemory * static_cast<double>(gpu.free_bytes()));
  engine::Engine engine(*network, config, clock);
  lap("engine");
  engine::GenerateRequest request;
  for (int64_t i = 0; i < kPromptTokens; ++i)
    request.input_ids.push_back(static_cast<TokenId>(i * 97 % 10000));
  request.sampling.max_new_tokens = 1;
  std::promise<engine::GenerateUpdate> done;
  engine.submit(std::move(request), [&](engine::GenerateUpdate update) {
    if (update.finish) done.set_value(std::move(update));
  });
  const engine::GenerateUpdate update = done.get_future().get();
  const double seconds = before + seconds_between(begin, clock.now());
  lap("first_token");
  if (update.finish->kind == engine::FinishReason::Kind::kAbort)
    throw ConfigError(name + ": " + update.finish->message);
  write_json_line({{"name", name},
                   {"value", seconds},
                   {"unit", "s"},
                   {"floor", 0.5},
                   {"fraction", 0.5 / seconds},
                   {"parts", parts},
                   {"gpu", gpu.description()}});
  return 0;
}

}  // namespace slime::cli
