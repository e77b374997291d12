#include "loop/rollout_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>
#include <variant>

#include "buffer/filter.h"
#include "core/error.h"
#include "core/interrupt.h"
#include "core/sampled_tokens.h"
#include "loop/ledger_prompts.h"
#include "loop/prompt_answers.h"
#include "loop/stalest_first.h"
#include "loop/step_abandoned.h"
#include "report/version_metrics.h"
#include "rollout/older_tokens.h"
#include "setup/response_rules.h"
#include "setup/scores.h"

namespace slime::loop {

rollout::RolloutConfig rollout_config(const config::RunConfig& config) {
  // Groups are dropped by a filter alone.
  const double filter_ratio =
      config.dynamic_sampling_filter_path.empty() ? 0 : config.max_filter_ratio.get();
  return {
      .groups_per_step = config.rollout_batch_size,
      .groups_per_refill = *config.over_sampling_batch_size,
      .max_concurrent_samples = config.sglang_server_concurrency * config.num_engines(),
      .num_slots =
          std::min<int64_t>(config.sglang_server_concurrency, config.sglang_max_running_requests) *
          config.num_engines(),
      .keeps_partial = config.partial_rollout,
      .refills_at_once = config.partial_rollout && config.over_sampling_refill == "group",
      .redraws_unended_groups = config.train_async && config.restart_mode == "prompt_group",
      .max_failed_groups = config.max_failed_groups,
      .max_failed_share = config.max_failed_group_share,
      .max_filtered_groups = static_cast<int64_t>(
          std::ceil(filter_ratio * static_cast<double>(config.rollout_batch_size))),
      .reward_threads = setup::num_reward_threads(config),
      .max_open_groups =
          config.train_async && !config.bounds_age() ? config.most_groups_of_any_age() : 0,
      // One batch to train on and one that is finished meanwhile; what waits longer gets staler.
      .max_waiting_groups = (config.train_async ? config.async_buffer_size.value_or(2) : 2) *
                            config.rollout_batch_size};
}

namespace {

/// How many times what a reward may take one waits for any of them, when no clock may leave it out.
constexpr double kPatience = 10;

std::unique_ptr<rollout::Rounds> make_rounds(const config::RunConfig& config,
                                             engine::EngineClient& engine) {
  if (!config.deterministic_schedule) return nullptr;
  return std::make_unique<rollout::Rounds>(
      engine, rollout::Rounds::Config{.tokens_per_round = config.schedule_round,
                                      .reward_threads = setup::num_reward_threads(config),
                                      .patience = kPatience * setup::reward_deadline(config, {})});
}

rollout::StalePolicy stale_policy(std::string_view word) {
  using enum rollout::StalePolicy;
  if (word == "drop") return kDrop;
  if (word == "retry") return kRetry;
  return word == "correct" ? kCorrect : kWait;
}

/// The same, with a lane of the timeline until it is answered.
template <typename Scored>
std::function<void(Scored, std::stop_token, rollout::AnswerFn<Scored>)> timed(
    report::Timeline& timeline,
    std::function<void(Scored, std::stop_token, rollout::AnswerFn<Scored>)> ask) {
  return [&timeline, ask = std::move(ask)](Scored what, std::stop_token stop,
                                           rollout::AnswerFn<Scored> answer) {
    timeline.join("rewards", "score");
    // With the call itself: one that is stopped may end without an answer.
    std::shared_ptr<void> at_end(nullptr, [&timeline](void*) { timeline.leave("rewards"); });
    ask(std::move(what), std::move(stop),
        [at_end, answer = std::move(answer)](Expected<Scored> scored) {
          answer(std::move(scored));
        });
  };
}

std::string_view name_of(rollout::HeldBy held_by) {
  switch (held_by) {
    case rollout::HeldBy::kNothing:
      return "";
    case rollout::HeldBy::kFullQueue:
      return "queue full";
    case rollout::HeldBy::kUpdate:
      return "update";
    case rollout::HeldBy::kStateLock:
      return "lease";
  }
  return "";
}

/// Calls of the scorer get a lane of the timeline.
void add_lanes(rollout::Scorer& scorer, report::Timeline& timeline) {
  if (scorer.rule.score) {
    scorer.rule.score = [&timeline, score = std::move(scorer.rule.score)](
                            const Sample& sample, const std::stop_token& stop) {
      timeline.join("rewards", "score");
      const std::shared_ptr<void> at_end(nullptr,
                                         [&timeline](void*) { timeline.leave("rewards"); });
      return score(sample, stop);
    };
  }
  if (auto* function = std::get_if<rollout::FunctionScorer>(&scorer.function)) {
    function->ask = timed(timeline, std::move(function->ask));
    if (function->ask_parts) function->ask_parts = timed(timeline, std::move(function->ask_parts));
  } else if (auto* groups = std::get_if<rollout::GroupScorer>(&scorer.function)) {
    groups->ask = timed(timeline, std::move(groups->ask));
  }
}

}  // namespace

RolloutSource::RolloutSource(const config::RunConfig& config, const text::Tokenizer& tokenizer,
                             buffer::DataSource& prompts, roles::Engines& engines,
                             roles::Trainers& trainers, OutcomeLog& outcomes,
                             report::RunMemory& memory, report::Recorder& recorder,
                             plugin::Plugins& plugins)
    : config_(config),
      prompts_(prompts),
      engines_(engines),
      trainers_(trainers),
      outcomes_(outcomes),
      memory_(memory),
      recorder_(recorder),
      plugins_(plugins),
      rules_(setup::training_rules(config)),
      rollout_prompts_(std::make_unique<Prompts>(*this)),
      left_out_([&recorder](std::string_view line) { recorder.message(line); }),
      rounds_(make_rounds(config, engines.client())),
      rollout_(rounds_ ? rounds_->engine() : engines.client(), rollout_config(config),
               make_hooks(tokenizer), rounds_.get()) {
  rules_.generate = plugins.generate(config.custom_generate_function_path,
                                     /*is_evaluation=*/false);
}

/// The spellings of the tokens that end a turn of the model: eos_token, and special stop tokens.
static std::vector<std::string> end_marks(const config::RunConfig& config,
                                          const text::Tokenizer& tokenizer) {
  std::vector<std::string> marks;
  const auto eos = tokenizer.special_tokens().find("eos_token");
  if (eos != tokenizer.special_tokens().end()) marks.push_back(eos->second);
  for (const int64_t stop : config.rollout_stop_token_ids) {
    const auto id = static_cast<TokenId>(stop);
    if (tokenizer.is_special(id))
      marks.push_back(tokenizer.decode(std::span(&id, 1), /*skip_special_tokens=*/false));
  }
  return marks;
}

rollout::RolloutHooks scoring_hooks(const config::RunConfig& config,
                                    const text::Tokenizer& tokenizer, plugin::Plugins& plugins) {
  rollout::RolloutHooks hooks;
  hooks.detokenize = [&tokenizer, skips = config.rollout_skip_special_tokens](
                         std::span<const TokenId> ids) { return tokenizer.decode(ids, skips); };
  rollout::Scorer& scorer = hooks.scorer;
  if (!config.has_users_reward())
    scorer.rule.score = setup::make_score(config, end_marks(config, tokenizer));
  scorer.function = plugins.scorer();
  hooks.ask_sample_hook = plugins.sample_hooks();
  const bool has_functions = !config::generate_paths(config).empty();
  if (has_functions && !config.has_users_reward() && !scorer.rule.score &&
      !config.debug_rollout_only) {
    scorer.rule.score = [](const Sample&, const std::stop_token&) -> Expected<json::value> {
      return failure(
          "the generate function set none, and there is neither --rm-type nor --custom-rm-path");
    };
  }
  if (has_functions)
    hooks.abort_functions = [&plugins](bool aborts) { plugins.abort_functions(aborts); };
  setup::add_teacher(config, scorer);
  scorer.rule.timeout = [&config](const Sample& sample) {
    return setup::reward_deadline(config, sample);
  };
  return hooks;
}

/// The run's prompts; groups that are dropped are told to people and to users' functions too.
class RolloutSource::Prompts final : public LedgerPrompts {
 public:
  explicit Prompts(RolloutSource& source)
      : LedgerPrompts(source.prompts_, source.outcomes_, choice_of(source)), source_(source) {}

  void dropped(const Group& group, const std::string& reason) override {
    LedgerPrompts::dropped(group, reason);
    source_.note_drop(group, reason);
  }

 private:
  static buffer::ChooseWaitingFn choice_of(RolloutSource& source) {
    buffer::ChooseWaitingFn of_user = source.plugins_.of_steps().choose_waiting();
    if (of_user || !config::gives_stalest_first(source.config_)) return of_user;
    return stalest_first;
  }

  RolloutSource& source_;
};

RolloutSource::~RolloutSource() = default;

void RolloutSource::note_drop(const Group& group, const std::string& reason) {
  const auto failed = std::ranges::find(group.samples, Status::kFailed, &Sample::status);
  if (reason == "failed" && failed != group.samples.end()) left_out_.add(group, failed->failure);
  if (reason != "failed") left_out_.add_filtered(reason);
  const std::lock_guard lock(dropped_mutex_);
  dropped_tokens_[reason] += num_sampled_tokens(group);
  if (reason == "failed" || !plugins_.of_steps().sees_dropped()) return;
  dropped_.push_back(group);
}

rollout::GroupFilter RolloutSource::make_filter() const {
  rollout::AskFilterFn of_user = plugins_.filter();
  if (of_user) return of_user;
  buffer::FilterFn filter = buffer::make_filter(config_.dynamic_sampling_filter_path);
  return [this, filter = std::move(filter)](const Group& group) {
    return filter(group, config_.reward_key);
  };
}

rollout::RolloutHooks RolloutSource::make_hooks(const text::Tokenizer& tokenizer) {
  rollout::RolloutHooks hooks = scoring_hooks(config_, tokenizer, plugins_);
  hooks.prompts = rollout_prompts_.get();
  hooks.filter = make_filter();
  add_lanes(hooks.scorer, recorder_.timeline());
  hooks.on_stream = [this](rollout::HeldBy held_by, int64_t num_under_way) {
    recorder_.timeline().enter("rollout", name_of(held_by));
    num_under_way_ = num_under_way;
  };
  hooks.on_progress = [this](int64_t groups_done, int64_t tokens) {
    left_out_.add_kept();  // only then is there progress
    recorder_.reached(groups_done, tokens);
  };
  return hooks;
}

void RolloutSource::show_to_users_functions(int64_t step, std::vector<Group>& groups) {
  plugins_.of_steps().filter_samples(step, groups);
  std::vector<Group> dropped;
  {
    const std::lock_guard lock(dropped_mutex_);
    dropped.swap(dropped_);
  }
  if (stream_) {
    const auto count = [this](const plugin::Question& question) -> plugin::ReplyValue {
      if (question.what != "num_prompts" && question.what != "buffer_length") {
        throw ConfigError(fmt::format(
            "{}: under slime train-async prompts are the stream's; get_buffer_length() and len() "
            "are answered",
            question.what));
      }
      const rollout::Rollout::StateLock lock(rollout_);
      PromptAnswers source(prompts_, outcomes_, PromptAnswers::Draws::kNothing, {});
      return source.answer(question);
    };
    return plugins_.of_steps().process_all(step, groups, std::move(dropped), count);
  }
  PromptAnswers source(prompts_, outcomes_, PromptAnswers::Draws::kNothing, {});
  plugins_.of_steps().process_all(
      step, groups, std::move(dropped),
      [&source](const plugin::Question& question) { return source.answer(question); });
  source.end("taken by the function of --rollout-all-samples-process-path");
}

rollout::StepResult RolloutSource::take_step(int64_t step, WeightVersion version) {
  // Also of a step that fails, because of what was left out.
  const std::shared_ptr<void> at_end(nullptr, [this](void*) { left_out_.end_step(); });
  if (!stream_) {
    rollout_.open_step({.step = step,
                        .rules = rules_,
                        .version = version,
                        .stop = StopFlags(trainers_.has_failed(), core::Interrupt::flag())});
  }
  // A stream goes on: a checkpoint has what is under way, with the tokens that it has.
  const StopFlags gives_up = stream_ ? StopFlags(core::Interrupt::flag()) : StopFlags();
  rollout::StepResult result;
  try {
    rollout::take_step(rollout_, gives_up, result);
  } catch (...) {
    abandon(result.groups);
    throw;
  }
  return result;
}

void RolloutSource::start_stream(const setup::RunSchedule& schedule, WeightVersion version) {
  outcomes_.lock_by([this] { return std::make_shared<rollout::Rollout::StateLock>(rollout_); });
  stream_ = {.groups_per_step = config_.rollout_batch_size,
             .steps_per_update = config_.update_weights_interval,
             .max_lag = *config_.max_staleness,
             .policy = stale_policy(config_.staleness_policy),
             .first_step = schedule.first_step,
             .first_version = version};
  rollout_.open_stream({.staleness = *stream_,
                        .num_steps = schedule.num_steps,
                        .rules = rules_,
                        .order = config_.async_order == "finish"
                                     ? rollout::ConsumptionOrder::kFinish
                                     : rollout::ConsumptionOrder::kDispatch,
                        .stop = &trainers_.has_failed()});
}

bool RolloutSource::abandon(const std::vector<Group>& groups) {
  abandoned_ = groups;
  return true;
}

rollout::Snapshot RolloutSource::between_steps() {
  return rollout::Rollout::StateLock(rollout_).snapshot();
}

OpenGroups RolloutSource::open_groups() {
  OpenGroups open = open_groups_of(rollout_);
  open.abandoned = abandoned_;
  return open;
}

void RolloutSource::while_training(const std::function<void()>& train) {
  if (!rounds_) return train();
  rounds_->pass_beside(config_.schedule_train_rounds, train);
}

/// How the stream stands behind a step that was taken from it.
void RolloutSource::add_stream_metrics(report::Metrics& metrics) {
  metrics["rollout/queue/finished_groups"] = static_cast<double>(rollout_.num_waiting_groups());
  metrics["rollout/queue/open_groups"] = static_cast<double>(num_under_way_.load());
  const Expected<engine::EngineLoad> load = engines_.client().load();
  if (!load) return;
  metrics["rollout/engine/running_samples"] = static_cast<double>(load->num_running);
  metrics["rollout/engine/waiting_samples"] = static_cast<double>(load->num_waiting);
  metrics["rollout/engine/kv_use"] = static_cast<double>(load->num_kv_tokens_used) /
                                     static_cast<double>(std::max<int64_t>(load->num_kv_tokens, 1));
  metrics["perf/update_copy_time"] = engines_.last_copy_seconds();
  metrics["perf/update_transfer_time"] = engines_.last_transfer_seconds();
}

namespace {

/// What was dropped may have been longer than what is trained, which then favours short responses.
void add_length_bias(const rollout::StepEnd& end, report::Collected& collected) {
  if (end.num_dropped_samples == 0) return;
  int64_t tokens = 0, samples = 0;
  for (const Group& group : collected.groups) {
    tokens += num_sampled_tokens(group);
    samples += static_cast<int64_t>(group.samples.size());
  }
  const double dropped =
      static_cast<double>(end.dropped_sample_tokens) / static_cast<double>(end.num_dropped_samples);
  collected.metrics["rollout/dropped/response_len_mean"] = dropped;
  if (tokens == 0) return;
  const double kept = static_cast<double>(tokens) / static_cast<double>(samples);
  collected.metrics["rollout/dropped/length_bias"] = dropped / kept;
}

}  // namespace

report::Collected RolloutSource::take(int64_t step) {
  const auto range =
      recorder_.phase(stream_ ? "wait" : "generate", "prompts", config_.rollout_batch_size);
  const WeightVersion version =
      stream_ ? stream_->version_at(step) : engines_.client().weight_version();
  rollout::StepResult result;
  memory_.explain_shortage(estimate::Phase::kGenerate, [&] { result = take_step(step, version); });
  trainers_.check_alive();
  if (core::Interrupt::came()) {
    abandon(result.groups);
    throw StepAbandoned();
  }
  const bool has_all = static_cast<int64_t>(result.groups.size()) >= config_.rollout_batch_size;
  report::UntrainedTokens untrained{{"lost", result.end.lost_tokens},
                                    {"discarded", result.end.discarded_tokens}};
  if (config_.mask_offpolicy_in_partial_rollout) {
    const int64_t before = report::num_trained_tokens(result.groups);
    for (Group& group : result.groups)
      rollout::mask_tokens_before(group, stream_ ? rollout::newest_version(group) : version);
    untrained["older"] = before - report::num_trained_tokens(result.groups);
  }
  {
    const std::lock_guard lock(dropped_mutex_);
    for (const auto& [reason, count] : std::exchange(dropped_tokens_, {}))
      untrained["dropped_" + reason] += count;
  }
  try {
    show_to_users_functions(step, result.groups);
  } catch (...) {
    abandon(result.groups);
    throw;
  }
  report::Collected collected{.groups = std::move(result.groups),
                              .untrained = std::move(untrained),
                              .masks_are_lost = !config_.custom_generate_function_path.empty(),
                              .generated_tokens = result.end.generated_tokens,
                              .data_ended = !has_all};
  collected.metrics = report::version_metrics(collected.groups, version);
  if (stream_) {
    add_stream_metrics(collected.metrics);
    report::add_metrics(collected.metrics, report::staleness_metrics(collected.groups, version));
  }
  if (const std::optional<roles::UpdateTraffic> traffic = engines_.last_traffic()) {
    collected.metrics["perf/update_weights_wire_bytes"] = static_cast<double>(traffic->bytes);
    collected.metrics["perf/update_weights_density"] = traffic->density;
  }
  double dropped = 0;
  for (const auto& [reason, count] : result.end.drops) {
    collected.metrics["rollout/dynamic_filter/drop_" + reason] = static_cast<double>(count);
    dropped += static_cast<double>(count);
  }
  if (dropped > 0) {
    collected.metrics["rollout/dynamic_filter/dropped_groups"] = dropped;
    collected.metrics["rollout/dynamic_filter/dropped_ratio"] =
        dropped / (dropped + static_cast<double>(collected.groups.size()));
  }
  if (stream_) {
    collected.metrics["rollout/retried_groups"] =
        static_cast<double>(result.end.num_retried_groups);
    add_length_bias(result.end, collected);
  }
  collected.metrics["perf/discarded_tokens"] = static_cast<double>(result.end.discarded_tokens);
  return collected;
}

}  // namespace slime::loop
