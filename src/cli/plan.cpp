#include "cli/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <optional>

#include "cli/by_name.h"
#include "cli/options.h"
#include "cli/plan_checks.h"
#include "config/parse_flags.h"
#include "config/rules.h"
#include "core/error.h"
#include "core/json.h"
#include "estimate/plan.h"
#include "model/config.h"
#include "model/eagle3.h"
#include "model/network.h"
#include "roles/run_adapters.h"
#include "roles/run_start.h"

namespace slime::cli {
namespace {

/// What `slime train` has no flag for.
struct Options {
  int64_t prompt_tokens = 512;
  int64_t response_tokens = 0;  // 0: half of the longest
  double device_gb = 141;
  double products_tflops = 0, expert_products_tflops = 0, link_gb = 0, network_gb = 0;
  int64_t num_shown = 5;
  bool prints_json = false;
};

void add_options(CLI::App& app, Options& options) {
  const auto count = CLI::Range(int64_t{1}, int64_t{1} << 40);
  app.add_option("--prompt-tokens", options.prompt_tokens, "of each prompt, in the mean")
      ->capture_default_str()
      ->check(count);
  app.add_option("--response-tokens", options.response_tokens,
                 "of each response, in the mean; default: half of --rollout-max-response-len")
      ->check(count);
  app.add_option("--layouts", options.num_shown, "how many of those that fit are shown")
      ->capture_default_str()
      ->check(count);
  app.add_flag("--json", options.prints_json, "for programs");
  const auto rate = [&](const char* name, double& value, const char* text) {
    app.add_option(name, value, text)->check(finite_range(1e-3, 1e9))->group("Rates");
  };
  app.add_option("--device-memory-gb", options.device_gb, "10^9 bytes of a device")
      ->capture_default_str()
      ->check(finite_range(1, 1e6))
      ->group("Rates");
  rate("--products-tflops", options.products_tflops, "that a training step reaches on a device");
  rate("--expert-products-tflops", options.expert_products_tflops, "the same of routed experts");
  rate("--link-gb-per-second", options.link_gb, "between devices of a host, each way");
  rate("--network-gb-per-second", options.network_gb, "of a device to other hosts, each way");
}

void set(estimate::Rate& rate, double value, double unit) {
  if (value > 0) rate = {value * unit, "as given"};
}

model::Recompute recompute_of(const config::RunConfig& config) {
  if (config.recompute_granularity == "full") return model::Recompute::kFull;
  return config.recompute_granularity == "selective" ? model::Recompute::kSelective
                                                     : model::Recompute::kNone;
}

void tell_planner(const std::string& sentence) { fmt::print(stderr, "slime plan: {}\n", sentence); }

/// Nothing, and a sentence, where its files are not here.
std::optional<estimate::DraftShape> draft_model_here(const config::RunConfig& config,
                                                     const model::ModelConfig& model) {
  const std::filesystem::path directory = config.rollout_draft_model.get();
  std::error_code unknown;
  const auto has = [&](const char* name) {
    return std::filesystem::exists(directory / name, unknown);
  };
  // A directory without config.json is another mistake, which reading it names.
  const bool is_here = has("config.json")
                           ? has("model.safetensors") || has("model.safetensors.index.json")
                           : std::filesystem::exists(directory, unknown);
  if (is_here)
    return estimate::draft_model_shape(
        *model::outline_eagle3(directory, model, config::kDraftModelFlag));
  tell_planner(fmt::format("{} {}: is not counted, its files are not here", config::kDraftModelFlag,
                           directory.string()));
  return std::nullopt;
}

/// What the run's engines draft with, and whether the trainer trains it too. What has no effect, or is not counted, is
/// said.
std::vector<estimate::DraftShape> planned_drafts(const config::ParsedFlags& flags,
                                                 const model::ModelConfig& model) {
  config::ParsedFlags checked = flags;
  config::Problems others({}), problems({});
  config::check_engine_workers(checked, others);  // a plan does without much that a run needs
  checked.warnings.clear();
  config::check_drafts(checked, problems);
  config::check_draft_training(checked.config, problems);
  problems.throw_if_any();
  for (const std::string& warning : checked.warnings) tell_planner(warning);
  const config::RunConfig& config = checked.config;
  const bool is_trained = roles::trained_draft_layers(config) == model::DraftLayers::kComputed;
  const bool drafts = config.generates() && config.has_drafts();
  const std::string why = model::why_no_draft_layers(model);
  if (is_trained && !why.empty()) throw ConfigError("--enable-mtp-training: " + why);
  if (drafts && !model.delta.in_layer.empty()) {
    tell_planner(fmt::format(
        "--rollout-drafts {} has no effect: layers of gated delta nets cannot step back",
        config.rollout_drafts));
  } else if (drafts && config.names_draft_layer() && !why.empty()) {
    tell_planner(fmt::format("--rollout-drafts {}: no layer: {}", config.rollout_drafts, why));
  }
  const auto settings = drafts ? roles::draft_settings(config, model) : engine::DraftSettings{};
  std::vector<estimate::DraftShape> counted;
  if (settings.layer || is_trained) {
    counted.push_back(estimate::draft_layers_shape(model));
    counted.back().are_trained = is_trained;
  }
  if (settings.model)
    if (auto draft = draft_model_here(config, model)) counted.push_back(*std::move(draft));
  return counted;
}

estimate::PlanConfig plan_config_of(const config::ParsedFlags& flags, const Options& options) {
  const config::RunConfig& config = flags.config;
  if (config.hf_checkpoint.empty())
    throw ConfigError("--hf-checkpoint: missing; a folder with the model's config.json");
  estimate::PlanConfig plan;
  plan.model = model::read_model_config(config.hf_checkpoint);
  if (config.trains_adapters()) plan.adapters = roles::adapter_form(config, plan.model);
  plan.drafts = planned_drafts(flags, plan.model);
  plan.workload.prompts = config.rollout_batch_size;
  plan.workload.samples = config.n_samples_per_prompt;
  plan.workload.prompt_tokens = options.prompt_tokens;
  plan.workload.response_tokens =
      options.response_tokens > 0
          ? options.response_tokens
          : std::max<int64_t>(config.rollout_max_response_len.value_or(2048) / 2, 1);
  plan.workload.micro_batch_tokens = config.max_tokens_per_gpu.value_or(
      config.micro_batch_size * (options.prompt_tokens + plan.workload.response_tokens));
  plan.workload.recompute = recompute_of(config);
  plan.workload.optimizer_on_host = config.optimizer_cpu_offload;
  plan.workload.has_reference = config.needs_reference();
  plan.workload.orders_backward = config.deterministic_mode;
  plan.trainers = {config.actor_num_nodes, config.actor_num_gpus_per_node};
  plan.rollout_devices = config.rollout_num_gpus.value_or(0);
  plan.colocates = config.colocate || plan.rollout_devices == 0;
  plan.takes_turns = config.takes_turns();
  if (flags.gives("--rollout-num-gpus-per-engine"))
    plan.per_engine = config.rollout_num_gpus_per_engine;
  plan.has_codes = config.has_codes();
  const auto wanted = [&](const char* flag, int64_t value) {
    return flags.gives(flag) ? std::optional(value) : std::nullopt;
  };
  plan.wanted = {
      .tp = wanted("--tensor-model-parallel-size", config.tensor_model_parallel_size),
      .pp = wanted("--pipeline-model-parallel-size", config.pipeline_model_parallel_size),
      .cp = wanted("--context-parallel-size", config.context_parallel_size),
      .ep = wanted("--expert-model-parallel-size", config.expert_model_parallel_size),
      .etp = config.expert_tensor_parallel_size,
      .sequence_parallel = config.sequence_parallel};
  // Ranks that train a draft layer have the whole model.
  if (std::ranges::any_of(plan.drafts, &estimate::DraftShape::are_trained))
    plan.wanted.tp = plan.wanted.pp = plan.wanted.cp = plan.wanted.ep = 1;
  plan.num_shown = options.num_shown;
  plan.rates.device_bytes = static_cast<int64_t>(options.device_gb * 1e9);
  set(plan.rates.products, options.products_tflops, 1e12);
  set(plan.rates.expert_products, options.expert_products_tflops, 1e12);
  set(plan.rates.link, options.link_gb, 1e9);
  set(plan.rates.network, options.network_gb, 1e9);
  add_run_checks(config, plan);
  return plan;
}

}  // namespace

int plan(std::span<const std::string> arguments) {
  Options options;
  CLI::App app(
      "Layout, memory of each device and messages of a run, before any device is there: a "
      "prediction from the model's config.json and measured rates. Takes the flags of slime train: "
      "--actor-num-nodes, --actor-num-gpus-per-node, --rollout-num-gpus, batch sizes, "
      "--max-tokens-per-gpu, ... Parallel sizes that are not given are chosen. Exit code 1 where "
      "nothing fits. docs/parallel.md.",
      "slime plan");
  app.allow_extras();
  add_options(app, options);
  if (const auto exit_code = parse_options(app, arguments)) return *exit_code;
  config::ParsedFlags flags = config::parse_flags(app.remaining());
  if (!flags.config.allow_unknown_flags && !flags.unknown_flags.empty()) {
    std::vector<std::string> problems;
    for (const auto& unknown : flags.unknown_flags) problems.push_back(unknown.text());
    throw ConfigError(problems);
  }
  find_names(flags, hub::Wanted::kConfig, /*may_download=*/true, "slime plan");
  const estimate::Plan made = estimate::make_plan(plan_config_of(flags, options));
  if (options.prints_json) {
    fmt::print("{}\n", json_text(estimate::to_json(made)));
  } else {
    fmt::print("{}", estimate::to_table(made));
  }
  return made.fits ? 0 : 1;
}

}  // namespace slime::cli
