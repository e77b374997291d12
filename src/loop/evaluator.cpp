#include "loop/evaluator.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "config/users_functions.h"
#include "core/error.h"
#include "core/interrupt.h"
#include "loop/evaluation_beside.h"
#include "loop/prompt_answers.h"
#include "loop/rollout_source.h"
#include "loop/step_abandoned.h"
#include "roles/run_start.h"
#include "setup/evaluation_plan.h"

namespace slime::loop {
namespace {

constexpr const char* kBrokenOff =
    "the evaluation was broken off; a run that goes on from here makes it again";

class NoEvaluation final : public Evaluator {
 public:
  void evaluate(int64_t /*step*/) override { throw BugError("nothing is to be evaluated"); }
};

class RowEvaluator final : public Evaluator {
 public:
  RowEvaluator(const EvaluatorParts& parts, std::unique_ptr<RowEvaluation> sets)
      : parts_(parts), sets_(std::move(sets)) {}

  void evaluate(int64_t step) override {
    const auto range = parts_.recorder.phase("evaluate", "rows", sets_->num_rows());
    report::EvalReport report;
    parts_.memory.explain_shortage(estimate::Phase::kTrain, [&] {
      report = sets_->run(parts_.trainers, core::Interrupt::flag());
    });
    if (core::Interrupt::came()) return parts_.recorder.message(kBrokenOff);
    parts_.recorder.evaluated(step, report);
  }

 private:
  const EvaluatorParts parts_;
  const std::unique_ptr<RowEvaluation> sets_;
};

class SetEvaluator final : public Evaluator {
 public:
  SetEvaluator(const EvaluatorParts& parts, std::unique_ptr<Evaluation> sets)
      : parts_(parts), sets_(std::move(sets)) {}

  void evaluate(int64_t step) override {
    if (!parts_.source.wait(core::Interrupt::flag())) return;
    const auto range = parts_.recorder.phase("evaluate", "prompts", sets_->num_prompts());
    report::EvalReport report;
    parts_.memory.explain_shortage(estimate::Phase::kGenerate, [&] {
      report = sets_->run(parts_.source.rollout(), core::Interrupt::flag());
    });
    if (core::Interrupt::came()) return parts_.recorder.message(kBrokenOff);
    parts_.plugins.of_steps().log_evaluation(step, report);
    parts_.recorder.evaluated(step, report);
  }

 private:
  const EvaluatorParts parts_;
  const std::unique_ptr<Evaluation> sets_;
};

class FunctionEvaluator final : public Evaluator {
 public:
  explicit FunctionEvaluator(const EvaluatorParts& parts) : parts_(parts) {}

  void evaluate(int64_t step) override {
    if (!parts_.source.wait(core::Interrupt::flag())) return;
    const auto range = parts_.recorder.phase("evaluate");
    report::EvalReport report;
    PromptAnswers prompts(parts_.prompts, parts_.outcomes, PromptAnswers::Draws::kTokens,
                          parts_.plugins.limits(/*is_evaluation=*/true));
    plugin::QuestionHandler::AnswerPrompts answer;  // a stream has buffer and ledger for itself
    if (parts_.source.stream() == nullptr)
      answer = [&prompts](const plugin::Question& question) { return prompts.answer(question); };
    try {
      parts_.memory.explain_shortage(estimate::Phase::kGenerate, [&] {
        report = parts_.plugins.of_rollouts().evaluate(
            step, answer, StopFlags(parts_.trainers.has_failed(), core::Interrupt::flag()));
      });
    } catch (...) {
      parts_.trainers.check_alive();
      if (core::Interrupt::came()) throw StepAbandoned();
      throw;
    }
    prompts.end("taken by the evaluation function");
    parts_.plugins.of_steps().log_evaluation(step, report);
    parts_.recorder.evaluated(step, report);
  }

 private:
  const EvaluatorParts parts_;
};

/// Weights of the second engine come and go with each evaluation. Of the engine's cores it takes
/// few: nobody waits for it.
engine::EngineConfig second_engine(const EvaluatorParts& parts) {
  engine::EngineConfig engine =
      roles::make_engine_config(parts.config, parts.text, parts.memory.plan().eval_cache_bytes());
  engine.max_running_requests = setup::evaluation_requests(parts.config);
  if (parts.engine_threads > 0) engine.num_threads = std::max<int64_t>(1, parts.engine_threads / 4);
  return engine;
}

class EvaluatorBeside final : public Evaluator {
 public:
  EvaluatorBeside(const EvaluatorParts& parts, std::unique_ptr<Evaluation> sets)
      : parts_(parts),
        sets_(std::move(sets)),
        beside_(*sets_, parts.config, second_engine(parts),
                scoring_hooks(parts.config, *parts.text.tokenizer, parts.plugins), parts.memory,
                parts.timeline, parts.clock) {}

  void evaluate(int64_t step) override {
    take(/*waits=*/true);
    if (core::Interrupt::came()) return;
    beside_.begin(step, *parts_.engines.own_weights(), parts_.engines.client());
  }

  void take(bool waits) override {
    if (!beside_.is_under_way()) return;
    const int64_t step = beside_.step();
    if (!beside_.ends_within(std::chrono::milliseconds(0))) {
      if (!waits) return;
      const auto range = parts_.recorder.phase("evaluate", "prompts", sets_->num_prompts());
      while (!core::Interrupt::came() && !beside_.ends_within(std::chrono::milliseconds(100))) {
      }
      if (core::Interrupt::came()) beside_.abandon();
    }
    std::optional<report::ConcurrentEvaluation> done = beside_.take();
    if (!done) {
      return parts_.recorder.message(fmt::format(
          "the evaluation {} was abandoned; a run that goes on from here makes it again",
          step < 0 ? "before training" : fmt::format("after step {}", step)));
    }
    parts_.plugins.of_steps().log_evaluation(done->step, done->report);
    parts_.recorder.evaluated_beside(*done);
  }

 private:
  const EvaluatorParts parts_;
  const std::unique_ptr<Evaluation> sets_;
  EvaluationBeside beside_;
};

}  // namespace

std::unique_ptr<Evaluator> make_evaluator(const EvaluatorParts& parts, EvaluationSets sets) {
  if (sets.rows) return std::make_unique<RowEvaluator>(parts, std::move(sets.rows));
  if (sets.generated && setup::evaluates_beside(parts.config))
    return std::make_unique<EvaluatorBeside>(parts, std::move(sets.generated));
  if (config::has_users_evaluation(parts.config)) return std::make_unique<FunctionEvaluator>(parts);
  if (sets.generated) return std::make_unique<SetEvaluator>(parts, std::move(sets.generated));
  return std::make_unique<NoEvaluation>();
}

}  // namespace slime::loop
