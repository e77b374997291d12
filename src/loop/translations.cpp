#include "loop/translations.h"

#include <cstdint>
#include <filesystem>

#include "cluster/placement.h"
#include "config/eval_config.h"
#include "config/users_functions.h"
#include "core/error.h"
#include "loop/accepted_samples.h"
#include "loop/evaluation.h"
#include "loop/rollout_source.h"
#include "model/config.h"
#include "roles/engine_workers_config.h"
#include "roles/rank_tasks.h"
#include "roles/run_start.h"
#include "setup/response_rules.h"
#include "setup/run_devices.h"
#include "setup/scores.h"
#include "setup/train_config.h"

namespace slime::loop {
namespace {

/// A run that is measured in epochs is as long as its data, which nobody has read yet: nothing is
/// refused for being too long for it.
constexpr int64_t kUnknownLength = 1'000'000;

int64_t length_to_assume(const config::RunConfig& config) {
  return config.num_rollout.value_or(kUnknownLength);
}

/// What only models with experts or with indexers ask for.
void translate_parts_of_model(const config::RunConfig& config, const model::ModelConfig* model) {
  if (model == nullptr || model->has_experts()) config.expert_tensor_parallel_size.get();
  if (model == nullptr || !model->indexer.in_layer.empty()) config.freeze_indexer.get();
}

/// Paths of functions, built in or the user's, that a policy's loss calls.
void translate_loss_functions(const config::RunConfig& config) {
  if (config.use_tis || config.get_mismatch_metrics) config.custom_tis_function_path.get();
  config.custom_pg_loss_reducer_function_path.get();
}

void translate_training(const config::RunConfig& config, const model::ModelConfig* model) {
  setup::make_train_config(config, length_to_assume(config),
                           model == nullptr || model->has_experts());
  translate_parts_of_model(config, model);
  if (config.has_advantages()) translate_loss_functions(config);
  roles::layout_of(config);
  const bool makes_own_batch =
      !config.custom_convert_samples_to_train_data_path.empty() || config.has_users_post_process();
  if (config.has_advantages() && !makes_own_batch) setup::make_batch_config(config);
  if (config.imitates_samples) acceptance_of(config);
  if (config.use_opd && config.opd_type == "megatron") config.opd_teacher_load.get();
  if (!config.has_critic()) return;
  const config::RunConfig& critic = config.critic != nullptr ? *config.critic : config;
  critic.critic_load.get();
}

/// Of a model that is not known all of them.
void translate_drafts(const config::RunConfig& config, const model::ModelConfig* model) {
  if (model != nullptr) {
    roles::draft_settings(config, *model);
    return;
  }
  if (!config.has_drafts()) return;
  config.rollout_draft_tokens.get();
  config.rollout_draft_always.get();
  if (config.names_texts()) config.rollout_draft_text_mb.get();
  if (config.names_draft_model()) config.rollout_draft_model.get();
}

void translate_engines(const config::RunConfig& config, const model::ModelConfig* model) {
  roles::engine_settings(config);
  translate_drafts(config, model);
  if (!config.rollout_session_id.get().empty()) roles::kept_engines_config(config);
  if (config.has_external_engines()) {
    roles::external_engines_config(config);
  } else if (config.num_engine_workers > 0) {
    roles::engine_workers_config(config, {}, {}, {}, setup::place_workers(config, 1, 0));
  }
}

void translate_generation(const config::RunConfig& config) {
  setup::training_rules(config);
  config.reward_key.get();
  rollout_config(config);
  if (!config.has_users_reward()) {
    setup::reward_config(config);
    setup::reward_deadline(config, {});
  }
  if (config.use_opd && config.opd_type == "sglang") config.rm_url.get();
}

}  // namespace

void read_flags_of_hosts(const config::RunConfig& config) {
  config.nodes_timeout_seconds.get();
  config.num_gpus_per_node.get();
}

std::unique_ptr<model::ModelConfig> model_if_here(const config::RunConfig& config) {
  const std::filesystem::path directory = config.hf_checkpoint.peek();
  if (!std::filesystem::exists(directory / "config.json")) return nullptr;
  try {
    return std::make_unique<model::ModelConfig>(model::read_model_config(directory));
  } catch (const ConfigError&) {
    return nullptr;
  }
}

void make_translations(const config::RunConfig& config, const model::ModelConfig* model) {
  if (!config.debug_rollout_only) translate_training(config, model);
  // Until its hosts are counted, a run is on as many as train.
  if (config.actor_num_nodes > 1) read_flags_of_hosts(config);
  if (!config.generates()) return;
  translate_engines(config, model);
  translate_generation(config);
  // A file of data sets may be missing where only the flags are checked.
  const bool has_sets = config.eval_config.empty() ? !config.eval_prompt_data.empty()
                                                   : std::filesystem::exists(config.eval_config);
  if (config.eval_interval && has_sets && !config::has_users_evaluation(config))
    config::eval_sets_of(config);
}

}  // namespace slime::loop
