// What a session does with samples that are sampled: functions of the user's that see them, their scores, the
// filter of their group.

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "rollout/ask.h"
#include "rollout/reward_call.h"
#include "rollout/session.h"
#include "rollout/verdict.h"

namespace slime::rollout {

namespace asio = boost::asio;

namespace {

/// Asks `ask`, which outlives the call, about `what`.
template <typename What, typename Answer>
AskFn<Answer> bound(const std::function<void(What, std::stop_token, AnswerFn<Answer>)>& ask,
                    What what) {
  return [&ask, what = std::move(what)](std::stop_token stop, AnswerFn<Answer> answer) mutable {
    ask(std::move(what), std::move(stop), std::move(answer));
  };
}

/// Sampled to its end, so far without a failure.
bool is_whole(const Sample& sample) {
  return sample.status == Status::kCompleted || sample.status == Status::kTruncated;
}

void fail_sample(Sample& sample, std::string why) {
  sample.status = Status::kFailed;
  sample.reward = nullptr;
  sample.failure = std::move(why);
}

}  // namespace

asio::awaitable<void> Session::ask_sample_hooks(std::shared_ptr<GroupInFlight> flight,
                                                std::size_t index) {
  co_await ask_sample_hook(flight->group.samples[index], flight->group.ordinal);
  for (Sample& part : flight->draws[index].other_parts)
    co_await ask_sample_hook(part, flight->group.ordinal);
}

/// `sample` is one of a flight that the caller holds.
asio::awaitable<void> Session::ask_sample_hook(Sample& sample, int64_t group) {
  if (!context_.hooks.ask_sample_hook || !is_whole(sample) || !sample.reward.is_null()) co_return;
  SampleInHook question{.sample = sample, .is_evaluation = rules_.is_evaluation};
  auto seen = co_await ask_elsewhere(bound(context_.hooks.ask_sample_hook, std::move(question)),
                                     rewards_stop_.get_token());
  if (!seen) co_return;
  if (!*seen) {
    fail_sample(sample, "sample hook: " + seen->error().message);
    co_return;
  }
  const auto num_sampled = [](const Sample& of) {
    return static_cast<int64_t>(of.log_probs.size());
  };
  const int64_t num_added = num_sampled(**seen) - num_sampled(sample);
  num_tokens_of_functions_ += std::max<int64_t>(num_added, 0);
  if (!rules_.is_evaluation)
    tell_discarded(context_.hooks.prompts, group, std::max<int64_t>(-num_added, 0));
  sample = std::move(**seen);
}

/// All of its samples are sampled, and scored where each has a score of its own.
asio::awaitable<void> Session::end_group(std::shared_ptr<GroupInFlight> flight) {
  const RolloutHooks& hooks = context_.hooks;
  Group& group = flight->group;
  if (!std::ranges::all_of(group.samples, is_whole)) co_return;
  const bool lacks_score = std::ranges::any_of(
      group.samples, [](const Sample& sample) { return sample.reward.is_null(); });
  const auto* scorer = std::get_if<GroupScorer>(&hooks.scorer.function);
  if (scorer != nullptr && lacks_score) {
    auto scored = co_await ask_elsewhere(bound(scorer->ask, group), rewards_stop_.get_token());
    if (!scored) co_return;
    for (std::size_t i = 0; i < group.samples.size(); ++i) {
      take_score(group.samples[i], *scored ? Expected<Sample>(std::move((*scored)->samples[i]))
                                           : failure(scored->error().message));
    }
    if (!std::ranges::all_of(group.samples, is_whole)) co_return;
  }
  const auto* filter = std::get_if<AskFilterFn>(&hooks.filter);
  if (filter == nullptr || rules_.is_evaluation || is_closed_) co_return;
  auto filtered = co_await ask_elsewhere(bound(*filter, group), rewards_stop_.get_token());
  if (!filtered) co_return;
  if (*filtered) {
    group = std::move((*filtered)->group);
    flight->filtered = std::move((*filtered)->verdict);
  } else {
    fail_sample(group.samples.front(), "filter: " + filtered->error().message);
  }
}

asio::awaitable<void> Session::score(std::shared_ptr<GroupInFlight> flight, std::size_t index) {
  Draw& draw = flight->draws[index];
  std::vector<Sample*> parts{&flight->group.samples[index]};
  for (Sample& part : draw.other_parts) parts.push_back(&part);
  for (Sample* part : parts) co_await ask_teacher(*part);
  const auto* scorer = std::get_if<FunctionScorer>(&context_.hooks.scorer.function);
  if (!draw.is_list || scorer == nullptr || !scorer->ask_parts) {
    for (Sample* part : parts) co_await score_one(*part);
    co_return;
  }
  if (!std::ranges::all_of(parts, [](const Sample* part) { return is_whole(*part); })) co_return;
  std::erase_if(parts, [](const Sample* part) { return !part->reward.is_null(); });
  if (!parts.empty()) co_await score_parts(scorer->ask_parts, std::move(parts));
}

/// `ask` outlives the call. `parts` are of a flight that the caller holds.
asio::awaitable<void> Session::score_parts(const AskGroupFn& ask, std::vector<Sample*> parts) {
  Group question{.ordinal = parts.front()->group, .samples = {}};
  for (const Sample* part : parts) question.samples.push_back(*part);
  auto scored = co_await ask_elsewhere(bound(ask, std::move(question)), rewards_stop_.get_token());
  if (!scored) co_return;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    take_score(*parts[i], *scored ? Expected<Sample>(std::move((*scored)->samples[i]))
                                  : failure(scored->error().message));
  }
}

/// `sample` is one of a flight that the caller holds. A function of the user's may have asked already.
asio::awaitable<void> Session::ask_teacher(Sample& sample) {
  const std::optional<Teacher>& teacher = context_.hooks.scorer.teacher;
  if (!teacher || rules_.is_evaluation || !is_whole(sample)) co_return;
  if (!sample.teacher_log_probs.empty() || sample.response_length() == 0) co_return;
  auto answer = co_await score_within(context_.runtime, teacher->ask, sample, teacher->timeout,
                                      rewards_stop_.get_token());
  if (!answer) co_return;
  if (!*answer) {
    fail_sample(sample, "teacher: " + answer->error().message);
    co_return;
  }
  sample.teacher_log_probs = json::value_to<std::vector<float>>((*answer)->at("teacher_log_probs"));
}

/// `sample` is one of a flight that the caller holds.
asio::awaitable<void> Session::score_one(Sample& sample) {
  const Scorer& scorer = context_.hooks.scorer;
  if (std::holds_alternative<GroupScorer>(scorer.function) || !is_whole(sample) ||
      !sample.reward.is_null())
    co_return;
  const auto* function = std::get_if<FunctionScorer>(&scorer.function);
  if (function != nullptr && (!function->scores || function->scores(sample))) {
    auto scored = co_await score_elsewhere(function->ask, sample, rewards_stop_.get_token());
    if (scored) take_score(sample, std::move(*scored));
    co_return;
  }
  const bool has_own = rules_.is_evaluation && scorer.rule.of_evaluations;
  const ScoreFn& score = has_own ? scorer.rule.of_evaluations : scorer.rule.score;
  if (!score) co_return;
  const auto timeout =
      scorer.rule.timeout ? scorer.rule.timeout(sample) : context_.config.reward_timeout;
  auto reward =
      co_await score_within(context_.runtime, score, sample, timeout, rewards_stop_.get_token());
  if (!reward) co_return;
  std::optional<std::string> problem;
  if (!*reward) {
    problem = reward->error().message;
  } else if (rules_.reward_problem) {
    problem = rules_.reward_problem(**reward);
  }
  if (problem) {
    fail_sample(sample, "reward: " + *problem);
  } else {
    sample.reward = std::move(**reward);
  }
}

void Session::take_score(Sample& sample, Expected<Sample> scored) const {
  std::optional<std::string> problem;
  if (!scored) {
    problem = scored.error().message;
  } else if (rules_.reward_problem && scored->status != Status::kFailed) {
    problem = rules_.reward_problem(scored->reward);
  }
  if (scored) sample = std::move(*scored);
  if (problem) fail_sample(sample, "reward: " + *problem);
}

}  // namespace slime::rollout
