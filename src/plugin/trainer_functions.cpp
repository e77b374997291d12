#include "plugin/trainer_functions.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <utility>

#include "config/parse_flags.h"
#include "core/error.h"
#include "plugin/loss_library.h"
#include "plugin/python_columns.h"
#include "plugin/python_loss.h"
#include "plugin/python_policy.h"
#include "plugin/shared_tensors.h"
#include "plugin/trainer_host.h"

namespace slime::plugin {
namespace {

std::vector<Hook> hooks_of(const config::RunConfig& config) {
  std::vector<Hook> hooks;
  const auto add = [&hooks](const char* hook, const std::string& path) {
    if (!path.empty()) hooks.push_back({.hook = hook, .path = path});
  };
  add("init", config.custom_megatron_init_path);
  add("before_log_prob", config.custom_megatron_before_log_prob_hook_path);
  add("before_train_step", config.custom_megatron_before_train_step_hook_path);
  add("loss", config.custom_loss_function_path);
  add("advantage", config.custom_advantage_function_path);
  add("data_postprocess", config.rollout_data_postprocess_path);
  add("tis", config.users_correction());
  add("reducer", config.users_reducer());
  return hooks;
}

/// sync: what is written on this thread's stream is there for another process. Not the whole device: an
/// engine beside the trainer may be recording.
void wait_for_gpu() {
  const c10::impl::VirtualGuardImpl gpu(at::kCUDA);
  gpu.getStream(gpu.getDevice()).synchronize();
}

}  // namespace

void import_trainer_functions(const config::RunConfig& config, const std::filesystem::path& logs) {
  if (!config.custom_loss_library.empty())
    load_loss_library(config.custom_loss_library, config::flags_for_users(config));
  const std::vector<Hook> hooks = hooks_of(config);
  if (hooks.empty()) return;
  TrainerHost(
      TrainerHostConfig{.python = config.plugin_python,
                        .rank = 0,
                        .logs = logs,
                        .flags = config::flags_for_users(config),
                        .hooks = hooks,
                        .timeout = std::chrono::duration<double>(config.plugin_timeout_seconds)});
}

TrainerFunctions::TrainerFunctions(const config::RunConfig& config,
                                   const std::filesystem::path& logs, int rank)
    : config_(config) {
  if (!config.custom_loss_library.empty())
    library_ = load_loss_library(config.custom_loss_library, config::flags_for_users(config));
  const std::vector<Hook> hooks = hooks_of(config);
  if (hooks.empty()) return;
  for (const Hook& hook : hooks) hooks_.push_back(hook.hook);
  host_ = std::make_unique<TrainerHost>(
      TrainerHostConfig{.python = config.plugin_python,
                        .rank = rank,
                        .logs = logs,
                        .flags = config::flags_for_users(config),
                        .hooks = hooks,
                        .timeout = std::chrono::duration<double>(config.plugin_timeout_seconds)});
  const bool is_on_gpu = config.device != "cpu";
  tensors_ = std::make_unique<SharedTensors>(*host_, is_on_gpu ? SharedOn::kGpu : SharedOn::kHost);
  if (is_on_gpu) host_->settle_by(wait_for_gpu);
}

TrainerFunctions::~TrainerFunctions() = default;

std::optional<int> TrainerFunctions::place_of(const std::string& hook) const {
  const auto found = std::ranges::find(hooks_, hook);
  if (found == hooks_.end()) return std::nullopt;
  return static_cast<int>(found - hooks_.begin());
}

int64_t TrainerFunctions::rollout_id(int64_t rollouts_done) {
  if (!done_before_) done_before_ = rollouts_done;
  return first_rollout_ + rollouts_done - *done_before_;
}

namespace {

[[noreturn]] void never() { throw BugError("functions of the user's are called by ranks"); }

}  // namespace

void TrainerFunctions::name_in(const config::RunConfig& config, train::TrainConfig& trainer) {
  if (!config.custom_loss_library.empty() || !config.custom_loss_function_path.empty())
    trainer.users_loss = [](const auto&...) -> train::LossFn::result_type { never(); };
  if (!config.custom_advantage_function_path.empty()) {
    trainer.users_advantage = [](const auto&...) -> train::UsersAdvantageFn::result_type {
      never();
    };
  }
  if (!config.rollout_data_postprocess_path.empty())
    trainer.postprocess = [](auto&&...) -> train::PostprocessFn::result_type { never(); };
  if (!config.users_correction().empty() || !config.users_reducer().empty()) {
    trainer.policy_functions = [](const auto&...) -> algo::PolicyFunctions { never(); };
  }
}

void TrainerFunctions::set_in(train::TrainConfig& trainer, int64_t first_rollout) {
  first_rollout_ = first_rollout;
  trainer.users_loss = library_;
  if (const auto hook = place_of("loss")) {
    trainer.users_loss =
        make_python_loss(*host_, *tensors_,
                         {.hook = *hook,
                          .calculate_per_token_loss = config_.calculate_per_token_loss,
                          .temperature = config_.rollout_temperature});
  }
  if (const auto hook = place_of("advantage"))
    trainer.users_advantage = make_python_advantage(*host_, *tensors_, *hook);
  if (const auto hook = place_of("data_postprocess")) {
    trainer.postprocess = make_python_postprocess(
        *host_, *tensors_, *hook,
        [this](int64_t rollouts_done) { return rollout_id(rollouts_done); });
  }
  const auto correction = place_of("tis"), reducer = place_of("reducer");
  if (correction || reducer) {
    trainer.policy_functions =
        make_python_policy(*host_, *tensors_,
                           {.correction = correction,
                            .reducer = reducer,
                            .calculate_per_token_loss = config_.calculate_per_token_loss});
  }
  if (const auto hook = place_of("init")) host_->call(*hook, "", {});
  if (const auto hook = place_of("before_log_prob")) {
    trainer.before_scoring = [this, hook = *hook](const std::string& prefix) {
      host_->call(hook, "", {{"store_prefix", prefix}});
    };
  }
  if (const auto hook = place_of("before_train_step")) {
    trainer.before_train_step = [this, hook = *hook](int64_t rollouts_done, int64_t step) {
      host_->call(hook, "", {{"rollout_id", rollout_id(rollouts_done)}, {"step_id", step}});
    };
  }
}

}  // namespace slime::plugin
