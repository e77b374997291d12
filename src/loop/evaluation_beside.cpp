#include "loop/evaluation_beside.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>

#include "core/error.h"
#include "engine/engine.h"
#include "model/network.h"
#include "plugin/plugins.h"
#include "roles/networks.h"
#include "setup/evaluation_plan.h"
#include "setup/scores.h"

namespace slime::loop {
namespace {

/// Engine and weights of one evaluation; the engine goes first.
struct SecondEngine {
  std::unique_ptr<model::Network> network;
  std::unique_ptr<engine::Engine> engine;
};

}  // namespace

EvaluationBeside::EvaluationBeside(const Evaluation& evaluation, const config::RunConfig& config,
                                   engine::EngineConfig engine, rollout::RolloutHooks hooks,
                                   const report::RunMemory& memory, report::Timeline& timeline,
                                   const Clock& clock)
    : evaluation_(evaluation),
      config_(config),
      engine_(std::move(engine)),
      hooks_(std::move(hooks)),
      memory_(memory),
      timeline_(timeline),
      clock_(clock) {}

EvaluationBeside::~EvaluationBeside() {
  abandon();
  if (result_.valid()) result_.wait();
}

void EvaluationBeside::begin(int64_t step, model::Network& weights,
                             const engine::EngineClient& published) {
  check(!is_under_way(), "one evaluation runs at a time");
  const WeightVersion version = published.weight_version();
  SecondEngine second;
  memory_.explain_shortage(estimate::Phase::kGenerate, [&] {
    second.network = roles::make_blank_copy(weights, roles::engine_precision(config_));
    engine::EngineConfig engine = engine_;
    // A trainer's weights come without its draft layers.
    engine.drafts = engine.drafts.for_network(second.network->num_draft_layers() > 0);
    second.engine = std::make_unique<engine::Engine>(*second.network, engine, clock_);
    engine::or_throw(second.engine->update_weights(
        {.version = version, .source = engine::FromNetwork{&weights}}));
  });
  step_ = step;
  stop_ = false;
  result_ = std::async(
      std::launch::async, [this, step, version, &published, second = std::move(second)]() mutable {
        const Clock::TimePoint begin = clock_.now();
        timeline_.enter("evaluation", "evaluate");
        const std::shared_ptr<void> at_end(
            nullptr, [this](void*) { timeline_.enter("evaluation", ""); });  // also when it throws
        report::ConcurrentEvaluation done{.step = step, .version = version};
        {
          const SecondEngine own = std::move(second);  // given back with the evaluation
          rollout::Rollout rollout(*own.engine,
                                   {.max_concurrent_samples = config_.sglang_server_concurrency,
                                    .reward_threads = setup::num_reward_threads(config_)},
                                   hooks_);
          done.report = evaluation_.run(rollout, stop_);
        }
        done.lag = published.weight_version() - version;
        done.seconds = seconds_between(begin, clock_.now());
        return done;
      });
}

bool EvaluationBeside::ends_within(std::chrono::milliseconds time) const {
  return result_.wait_for(time) == std::future_status::ready;
}

std::optional<report::ConcurrentEvaluation> EvaluationBeside::take() {
  report::ConcurrentEvaluation done = result_.get();
  if (stop_) return std::nullopt;
  return done;
}

}  // namespace slime::loop
