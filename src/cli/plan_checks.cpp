#include "cli/plan_checks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "roles/code_slices.h"
#include "roles/engine_ranks.h"

namespace slime::cli {
namespace {

/// The run with as few ranks that train as have this layout within a pipeline stage, and their engines.
config::RunConfig run_of(const config::RunConfig& config, const estimate::PlanConfig& plan,
                         int64_t num_ranks, int64_t per_engine) {
  config::RunConfig run = config;
  run.actor_num_nodes = 1;
  run.actor_num_gpus_per_node = num_ranks;
  run.tensor_model_parallel_size = 1;
  run.pipeline_model_parallel_size = 1;
  run.context_parallel_size = 1;
  run.expert_model_parallel_size = 1;
  run.expert_tensor_parallel_size = 1;
  run.decoder_first_pipeline_num_layers = run.decoder_last_pipeline_num_layers = std::nullopt;
  run.rollout_num_gpus_per_engine = per_engine;
  run.num_engine_workers = plan.colocates ? 0 : 1;
  run.colocate = plan.colocates && plan.takes_turns;
  if (run.colocate) run.rollout_num_gpus = num_ranks;
  return run;
}

std::string problems_of(const config::RunConfig& run, const model::ModelConfig& model) {
  std::vector<std::string> problems;
  roles::check_code_slices(run, model, problems);
  return fmt::format("{}", fmt::join(problems, "\n"));
}

}  // namespace

void add_run_checks(const config::RunConfig& config, estimate::PlanConfig& plan) {
  const auto bounds = std::make_shared<const estimate::PlanConfig>(plan);
  plan.why_no_engine = [config, bounds](int64_t per_engine) -> std::string {
    try {
      roles::check_engine_ranks(bounds->model, per_engine, "--rollout-num-gpus-per-engine");
    } catch (const ConfigError& error) {
      return error.what();
    }
    return problems_of(run_of(config, *bounds, std::max<int64_t>(2, per_engine), per_engine),
                       bounds->model);
  };
  if (!plan.has_codes) return;
  // What a rank cuts of a tensor depends on these two.
  using Sizes = std::pair<int, int>;
  const auto known = std::make_shared<std::map<Sizes, std::string>>();
  plan.why_no_layout = [config, bounds, known](const comm::ParallelLayout& layout) {
    const auto [found, is_new] = known->try_emplace(Sizes(layout.tp, layout.etp));
    if (is_new) {
      config::RunConfig run =
          run_of(config, *bounds, std::max<int64_t>(2, int64_t{layout.tp} * layout.etp), 1);
      run.tensor_model_parallel_size = layout.tp;
      run.expert_tensor_parallel_size = layout.etp;
      found->second = problems_of(run, bounds->model);
    }
    return found->second;
  };
}

}  // namespace slime::cli
