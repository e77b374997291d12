/// The workloads of bench/gpu/workloads.json on this machine's GPU.

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "bench/flags.h"
#include "bench/made_up_adapters.h"
#include "bench/made_up_directory.h"
#include "bench/workload.h"
#include "cluster/run_identity.h"
#include "core/clock.h"
#include "core/error.h"
#include "core/json_lines.h"
#include "kernels/gpu/gpu.h"
#include "kernels/gpu/limits.h"
#include "roles/engine_ranks.h"

namespace slime::bench {
namespace {

struct GpuWorkloadOptions {
  std::vector<std::string> names;
  std::string file = kWorkloadsFile;
  int repeats = 2;  // the best counts
  int64_t max_prefill_tokens = 8192;
  int64_t max_running_requests = 256;
  int64_t context_length = 8448;
  std::string kv_cache_dtype = "auto";
  std::string rollout_precision = "auto";
  bool shares_prompt_reads = true;
  int tp = 1;                 // ranks of the engine, each with a GPU of this machine
  bool nccl_alone = false;    // of ranks: small ones too
  int64_t verify_tokens = 0;  // of EngineConfig
  bool has_profile = false;   // what fills the first rank's GPU, one more run of each workload
  AdapterOptions adapters;
  DraftOptions drafts;
};

/// The further ranks of an engine, with a directory that says what the model is.
struct OtherRanks {
  std::unique_ptr<MadeUpDirectory> directory;
  std::unique_ptr<roles::EngineRanks> ranks;
};

std::unique_ptr<OtherRanks> start_ranks(const std::string& model, const GpuWorkloadOptions& options,
                                        const Clock& clock) {
  if (options.tp == 1) return nullptr;
  const MadeUpDirectoryOptions shape{.shape = {.file = options.file, .model = model},
                                     .has_weights = false};
  auto directory = std::make_unique<MadeUpDirectory>(shape);
  roles::check_engine_ranks(model::read_model_config(directory->model()), options.tp, "--tp");
  constexpr std::chrono::minutes kDeadline{2};
  roles::EngineRanksConfig config{
      .start = {.directory = directory->model(),
                .device = "cuda",
                .dtype = "bfloat16",
                .made_up_bound = kGenerationWeightBound,
                .nccl_alone = options.nccl_alone,
                .num_ranks = options.tp,
                .num_threads = at::get_num_threads(),
                .collective_milliseconds = std::chrono::milliseconds(kDeadline).count()},
      .identity = {.token = cluster::make_run_token()},
      .log_folder = directory->path(),
      .on_lost = [](const std::string& why) {
        std::fputs(("slime bench: " + why + "\n").c_str(), stderr);
        std::_Exit(1);
      }};
  auto ranks = std::make_unique<roles::EngineRanks>(std::move(config), clock);
  return std::make_unique<OtherRanks>(OtherRanks{std::move(directory), std::move(ranks)});
}

/// Workloads of the same model share one network and one engine.
void run_model(const WorkloadFile& file, const std::string& model,
               const std::vector<const Workload*>& workloads, const GpuWorkloadOptions& options,
               const kernels::GpuLimits& limits) {
  kernels::opened_gpu().release_unused_memory();
  const SystemClock clock;
  const Clock::TimePoint start = clock.now();
  const auto ranks = start_ranks(model, options, clock);
  engine::EngineConfig config;
  if (ranks) config.mesh = &ranks->ranks->mesh();
  const model::ModelConfig shape = model::parse_model_config(file.models.at(model), model);
  const bool has_codes = options.rollout_precision == "fp8";
  const auto network =
      has_codes ? make_up_network(shape, kGenerationWeightBound, kernels::MatrixFormat::kFp8Blocks)
                : make_up_network(shape, kGenerationWeightBound, *config.mesh);
  config.max_running_requests = options.max_running_requests;
  config.max_prefill_tokens = options.max_prefill_tokens;
  config.context_length = std::min(options.context_length, network->config().max_positions);
  for (const Workload* workload : workloads)
    config.context_length = std::max(config.context_length, longest_request(*workload));
  config.kv_cache_dtype = options.kv_cache_dtype;
  config.shares_prompt_reads = options.shares_prompt_reads;
  config.verify_tokens = options.verify_tokens;
  const auto adapters =
      open_made_up_adapters(*network, options.adapters, *config.mesh,
                            ranks ? &ranks->ranks->followers() : nullptr);  // outlives the engine
  config.adapters = adapters.get();
  config.drafts = options.drafts.settings();
  config.kv_cache_bytes = most_free_bytes();
  engine::Engine engine(*network, config, clock,
                        ranks ? ranks->ranks->make_runner() : engine::make_step_runner);
  const double start_seconds = seconds_between(start, clock.now());
  for (const Workload* each : workloads) {
    Workload workload = *each;
    workload.adapters = names_of(options.adapters);
    json::object line =
        run_workload(engine, *network, workload, limits, options.repeats,
                     options.shares_prompt_reads, clock, options.tp, options.drafts);
    if (ranks) {
      line["ranks"] = options.tp;
      line["sums"] = options.nccl_alone ? "NCCL" : "peer memory";
    }
    if (has_codes) line["rollout_precision"] = options.rollout_precision;
    if (options.verify_tokens > 0) line["verify_tokens"] = options.verify_tokens;
    if (options.kv_cache_dtype != "auto") line["kv_cache_dtype"] = options.kv_cache_dtype;
    if (options.adapters.rank > 0) {
      line["lora_rank"] = options.adapters.rank;
      line["adapters"] = std::max<int64_t>(options.adapters.count, 1);
    }
    line["gpu"] = kernels::opened_gpu().description();
    line["weights_and_engine_seconds"] = start_seconds;
    if (options.has_profile) line["profile"] = profile_workload(engine, workload, clock);
    write_json_line(line);
  }
}

void measure_gpu_workloads(const GpuWorkloadOptions& options) {
  const WorkloadFile file = read_workloads(options.file);
  std::vector<std::string> models;  // in order of appearance
  std::vector<const Workload*> chosen;
  for (const std::string& name : options.names) {
    const Workload* workload = file.find(name);
    if (workload == nullptr) {
      std::vector<std::string> names;
      for (const Workload& known : file.workloads) names.push_back(known.id);
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
    std::vector<const Workload*> of_model;
    std::copy_if(chosen.begin(), chosen.end(), std::back_inserter(of_model),
                 [&](const Workload* workload) { return workload->model == model; });
    run_model(file, model, of_model, options, limits);
  }
}

}  // namespace

int gpu_workloads(const std::string& name, Arguments arguments) {
  GpuWorkloadOptions options;
  Flags flags("Workloads that rollout engines are compared on, on this machine's GPU.", name);
  flags.add_option("workloads", options.names, "Names in the file of workloads")->required();
  flags.workloads_file(options.file);
  flags.repeats(options.repeats, "The best counts");
  flags.prefill(options.max_prefill_tokens);
  flags.add("--max-running-requests", options.max_running_requests, "Requests per step");
  flags.add("--kv-cache-dtype", options.kv_cache_dtype, "auto or fp8_e4m3");
  flags.add("--rollout-precision", options.rollout_precision, "auto or fp8, with --tp 1")
      ->check(CLI::IsMember({"auto", "fp8"}));
  flags.add_flag("!--no-shared-reads", options.shares_prompt_reads,
                 "Each sample reads its prompt's keys and values itself");
  flags.range("--tp", options.tp, 1, 64, "GPUs of this machine that share the model");
  flags.add_flag("--disable-custom-all-reduce", options.nccl_alone,
                 "With --tp: small sums go through NCCL, as large ones do");
  flags.range("--lora-rank", options.adapters.rank, 0, 256,
              "An adapter of this rank beside all linear layers");
  flags.range("--adapters", options.adapters.count, 0, 256,
              "With --lora-rank: so many, which requests name in turn; 0: one that all rows take");
  flags.range("--verify-tokens", options.verify_tokens, 0, 64,
              "So many tokens are decoded before the trainer's arithmetic verifies them, in which "
              "prompts are computed too; 0: all steps are fast");
  flags.drafts(options.drafts);
  flags.add_flag("--profile", options.has_profile,
                 "What fills the first GPU's time: kernels, collectives, gaps");
  if (const auto exit_code = flags.take(arguments)) return *exit_code;
  if (options.tp > 1 && options.rollout_precision != "auto")
    throw ConfigError("--rollout-precision fp8: engines of several ranks have plain weights");
  if (options.adapters.count > 0 && options.adapters.rank == 0)
    throw ConfigError("--adapters: has no rank; add --lora-rank 32");
  measure_gpu_workloads(options);
  return 0;
}

}  // namespace slime::bench
