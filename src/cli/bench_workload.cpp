#include "cli/bench_workload.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "cli/json_lines.h"
#include "cli/options.h"
#include "core/clock.h"
#include "core/error.h"
#include "engine/workload.h"
#include "kernels/gpu/gpu.h"
#include "kernels/gpu/limits.h"

namespace slime::cli {
namespace {

constexpr double kWorkloadWeightBound = 1e-3;  // of the made-up weights
constexpr double kShareOfMemory = 0.8;         // of what the weights leave free, for the KV cache

struct WorkloadOptions {
  std::vector<std::string> names;
  std::string file = "bench/gpu/workloads.json";
  int repeats = 2;
  int64_t max_prefill_tokens = 8192;
  int64_t max_running_requests = 256;
  int64_t context_length = 8448;
  std::string kv_cache_dtype = "auto";
  bool shares_prompt_reads = true;
};

/// Workloads of the same model share one network and one engine.
void run_model(const engine::WorkloadFile& file, const std::string& model,
               const std::vector<const engine::Workload*>& workloads,
               const WorkloadOptions& options, const kernels::GpuLimits& limits) {
  kernels::opened_gpu().release_unused_memory();
  const SystemClock clock;
  const Clock::TimePoint start = clock.now();
  const auto network =
      model::make_uniform_network(model::parse_model_config(file.models.at(model), model),
                                  model::Precision::on_gpu("bfloat16"), kWorkloadWeightBound);
  engine::EngineConfig config;
  config.max_running_requests = options.max_running_requests;
  config.max_prefill_tokens = options.max_prefill_tokens;
  config.context_length = options.context_length;
  config.kv_cache_dtype = options.kv_cache_dtype;
  config.shares_prompt_reads = options.shares_prompt_reads;
  config.kv_cache_bytes = static_cast<int64_t>(
      kShareOfMemory * static_cast<double>(kernels::opened_gpu().free_bytes()));
  engine::Engine engine(*network, config, clock);
  const double start_seconds = seconds_between(start, clock.now());
  for (const engine::Workload* workload : workloads) {
    json::object line =
        engine::run_workload(engine, *network, *workload, limits, options.repeats, clock);
    line["gpu"] = kernels::opened_gpu().description();
    line["weights_and_engine_seconds"] = start_seconds;
    write_json_line(line);
  }
}

}  // namespace

int bench_workload(std::span<const std::string> arguments) {
  CLI::App app("Workloads that rollout engines are compared on, on this machine's GPU.",
               "slime bench WORKLOAD...");
  WorkloadOptions options;
  app.add_option("workloads", options.names, "Names in the file of workloads")->required();
  app.add_option("--workloads-file", options.file, "The file of workloads")->capture_default_str();
  app.add_option("--repeats", options.repeats, "The best counts")
      ->capture_default_str()
      ->check(CLI::Range(1, 100));
  app.add_option("--chunked-prefill-size", options.max_prefill_tokens, "Prompt tokens per step")
      ->capture_default_str();
  app.add_option("--max-running-requests", options.max_running_requests, "Requests per step")
      ->capture_default_str();
  app.add_option("--kv-cache-dtype", options.kv_cache_dtype, "auto or fp8_e4m3")
      ->capture_default_str();
  app.add_flag("!--no-shared-reads", options.shares_prompt_reads,
               "Each sample reads its prompt's keys and values itself");
  if (const auto exit_code = parse_options(app, arguments)) return *exit_code;
  const engine::WorkloadFile file = engine::read_workloads(options.file);
  std::vector<std::string> models;  // in order of appearance
  std::vector<const engine::Workload*> chosen;
  for (const std::string& name : options.names) {
    const engine::Workload* workload = file.find(name);
    if (workload == nullptr) {
      std::vector<std::string> names;
      for (const engine::Workload& known : file.workloads) names.push_back(known.id);
      throw ConfigError(fmt::format("no measurement or workload \"{}\"; {} has {}", name,
                                    options.file, fmt::join(names, ", ")));
    }
    chosen.push_back(workload);
    if (std::find(models.begin(), models.end(), workload->model) == models.end())
      models.push_back(workload->model);
  }
  kernels::open_gpu();
  const kernels::GpuLimits limits = kernels::measure_gpu_limits();
  for (const std::string& model : models) {
    std::vector<const engine::Workload*> of_model;
    std::copy_if(chosen.begin(), chosen.end(), std::back_inserter(of_model),
                 [&](const engine::Workload* workload) { return workload->model == model; });
    run_model(file, model, of_model, options, limits);
  }
  return 0;
}

}  // namespace slime::cli
