#include "evaluate/evaluate.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "core/calendar.h"
#include "core/clock.h"
#include "core/error.h"
#include "core/interrupt.h"
#include "core/temporary_folder.h"
#include "engine/engine.h"
#include "evaluate/sample_file.h"
#include "loop/evaluation.h"
#include "loop/rollout_source.h"
#include "model/adapter_files.h"
#include "model/network.h"
#include "net/digest.h"
#include "plugin/plugins.h"
#include "plugin/run_api.h"
#include "report/rollout_metrics.h"
#include "roles/networks.h"
#include "roles/run_start.h"
#include "rollout/rollout.h"
#include "setup/prompts.h"

namespace slime::evaluate {
namespace {

namespace fs = std::filesystem;

/// Flags that say where and how fast, and change no sample.
const std::set<std::string, std::less<>> kPlaces{
    "--hf-checkpoint",    "--device",       "--num-threads",         "--kv-cache-gb",
    "--reward-threads",   "--plugin-hosts", "--rollout-num-threads", "--prompt-data",
    "--eval-prompt-data", "--run-dir",      "--plugin-python"};

/// Names, sizes and times of the model's files: another model is not gone on with.
json::object files_of(const fs::path& directory) {
  json::object files;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory)) {
    if (!entry.is_regular_file()) continue;
    const std::string end = entry.path().extension().string();
    if (end != ".safetensors" && end != ".json" && end != ".jinja") continue;
    files[entry.path().filename().string()] =
        json::array{entry.file_size(),
                    static_cast<int64_t>(entry.last_write_time().time_since_epoch().count())};
  }
  return files;
}

json::object settings_of(const config::RunConfig& config, const fs::path& adapter,
                         const loop::Evaluation& evaluation) {
  json::object settings;
  for (const auto& flag : config::changed_flags(config))
    if (!kPlaces.contains(flag.key())) settings[flag.key()] = flag.value();
  settings["model files"] = files_of(config.hf_checkpoint.get());
  if (!adapter.empty()) settings["adapter files"] = files_of(adapter);
  for (const std::string& name : evaluation.names()) {
    const buffer::Dataset& rows = evaluation.dataset(name);
    settings["rows of " + name] =
        fmt::format("{} rows, CRC-32C {:08x}", rows.size(), rows.fingerprint());
  }
  return settings;
}

/// Samples that nothing scores would all count 0. Sets of --eval-config name rewards of their own.
void require_reward(const config::RunConfig& config, const loop::Evaluation& evaluation) {
  if (!config.rm_type.empty() || config.has_users_reward() || !config.eval_config.empty() ||
      !config.custom_generate_function_path.empty() || !config.rollout_sample_hook_path.empty())
    return;
  for (const std::string& name : evaluation.names()) {
    const buffer::Dataset& rows = evaluation.dataset(name);
    for (int64_t row = 0; row < rows.size(); ++row)
      if (!rows.prompt(row).metadata.contains("rm_type"))
        throw ConfigError(
            fmt::format("--rm-type: a reward is needed (math, dapo, gpqa, ...), or "
                        "--custom-rm-path: row {} of {} names no rm_type in its metadata",
                        row + 1, name));
  }
}

/// Of a row by its content, as the file has it: models with other templates have the same.
std::string key_of(const buffer::Dataset& rows, int64_t row) {
  constexpr std::size_t kDigits = 16;
  const Prompt prompt = rows.prompt(row);
  const std::string text = json_text(json::array{prompt.source, prompt.label});
  return net::sha256(text).substr(0, kDigits);
}

/// Without samples there is none that failed.
bool has_only_failed(std::span<const report::EvalScore> scores) {
  int64_t failed = 0, samples = 0;
  for (const report::EvalScore& score : scores) {
    failed += report::num_failed(score.groups);
    for (const Group& group : score.groups) samples += std::ssize(group.samples);
  }
  return samples > 0 && failed == samples;
}

}  // namespace

EvaluationResult evaluate(const config::ParsedFlags& flags, const EvaluateOptions& options) {
  const at::NoGradGuard no_gradients;
  const config::RunConfig& config = flags.config;
  const SystemClock clock;
  const TemporaryFolder logs("slime-eval");  // of what users' functions print
  const auto today = std::chrono::floor<std::chrono::days>(local_time(clock.unix_seconds()));
  const setup::ModelText text = setup::load_model_text(
      config.hf_checkpoint, roles::needs_template(config, /*evaluates=*/true), today);
  loop::Evaluation evaluation(config, text);
  for (const std::string& remark : evaluation.remarks()) options.say(remark);
  require_reward(config, evaluation);
  EvaluationResult result{.settings = settings_of(config, options.adapter, evaluation)};
  result.num_prompts = evaluation.num_prompts();
  std::optional<SampleFile> file;
  if (!options.output.empty()) file.emplace(options.output, result.settings);
  if (file) result.num_kept = file->num_done();

  std::unique_ptr<plugin::RunApi> run_api;
  if (plugin::opens_door(config)) run_api = std::make_unique<plugin::RunApi>(config, text);
  const bool draws = run_api != nullptr;
  plugin::Plugins plugins(config, flags.unknown, evaluation.own_rewards(), {.logs = logs.path()},
                          std::move(run_api));
  if (draws) evaluation.draw_by(plugins);
  plugins.tell_by(options.say);
  rollout::RolloutHooks hooks = loop::scoring_hooks(config, *text.tokenizer, plugins);

  const auto network =
      model::load_network(config.hf_checkpoint.get(), roles::engine_precision(config),
                          comm::Mesh::single(), roles::engine_draft_layers(config));
  if (!options.adapter.empty()) model::load_adapters(*network, options.adapter);
  engine::Engine engine(*network, roles::make_engine_config(config, text, options.kv_cache_bytes()),
                        clock);
  if (draws) plugins.open_door(engine, engine.max_request_tokens());
  int64_t prompts_of_sets = 0, tokens_of_sets = 0, prompts = 0, tokens = 0;
  hooks.on_progress = [&](int64_t groups_done, int64_t num_tokens) {
    if (groups_done < prompts) {  // another set begins
      prompts_of_sets += prompts;
      tokens_of_sets += tokens;
    }
    prompts = groups_done;
    tokens = num_tokens;
    options.on_progress(result.num_kept + prompts_of_sets + prompts, result.num_prompts,
                        tokens_of_sets + tokens);
  };
  rollout::Rollout rollout(engine, loop::rollout_config(config), hooks);
  loop::EvaluationRecord record;
  if (file) {
    record.done = [&file](const std::string& set) { return file->done(set); };
    record.add = [&file](const std::string& set, const Group& group) { file->add(set, group); };
  }
  const report::EvalReport report = evaluation.run(rollout, core::Interrupt::flag(), record);
  result.is_broken_off = core::Interrupt::came();
  result.has_only_failed = has_only_failed(report.scores);
  for (const std::string& remark : report.remarks) options.say(remark);
  for (const report::EvalScore& score : report.scores) {
    const buffer::Dataset& rows = evaluation.dataset(score.name);
    std::vector<Group> counted =
        config.eval_leave_out_failed ? report::without_failed(score.groups) : score.groups;
    SetResult set = to_result(score.name, counted, config.eval_reward_key,
                              [&rows](int64_t row) { return key_of(rows, row); });
    set.num_failed = report::num_failed(score.groups);
    set.num_too_long = rows.num_too_long();
    result.sets.push_back(std::move(set));
  }
  return result;
}

}  // namespace slime::evaluate
