#include "estimate/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace slime::estimate {
namespace {

/// Keys and values need room too: an engine's weights take at most so much of it.
constexpr double kMostForWeights = 0.6;

Divisible divisible_of(const model::ModelConfig& model) {
  const bool is_latent = model.latent.kv_rank > 0;
  return {.heads = model.num_heads,
          .key_heads = is_latent ? 1 : model.num_kv_heads,
          .experts = model.experts.in_layer.empty() ? 0 : model.experts.count};
}

int64_t room_of_engine(const Plan& plan) {
  int64_t room = plan.config.rates.room();
  // The trainer's weights and optimizer stay while the engine generates; the rest is given back in turns.
  if (!plan.engines.are_apart) {
    int64_t stays = 0;
    for (const Stage& stage : plan.best().stages)
      stays =
          std::max(stays, plan.engines.in_turns ? stage.memory.resident() : stage.memory.peak());
    room -= stays;
  }
  return room;
}

EnginePlace place_of(const Engines& engines) {
  if (engines.are_apart) return EnginePlace::kApart;
  return engines.in_turns ? EnginePlace::kInTurns : EnginePlace::kBeside;
}

void choose_engines(Plan& plan) {
  const PlanConfig& config = plan.config;
  Engines& engines = plan.engines;
  engines.are_apart = !config.colocates;
  engines.in_turns = config.colocates && config.takes_turns;
  engines.devices = config.colocates ? config.trainers.count() : config.rollout_devices;
  if (engines.devices < 1)
    throw ConfigError("--rollout-num-gpus: engines need at least one device");
  const int64_t room = room_of_engine(plan);
  const auto takes_too_much = [&](int64_t devices) {
    const EngineMemory own = engine_weights(plan.shape, devices, place_of(engines));
    return static_cast<double>(own.weights + own.staged) >
           kMostForWeights * static_cast<double>(room);
  };
  if (config.per_engine) {
    engines.per_engine = *config.per_engine;
    if (engines.per_engine < 1 || engines.devices % engines.per_engine != 0) {
      throw ConfigError(
          fmt::format("--rollout-num-gpus-per-engine {}: should divide the {} devices of engines",
                      engines.per_engine, engines.devices));
    }
  } else {
    while (engines.per_engine * 2 <= engines.devices && takes_too_much(engines.per_engine))
      engines.per_engine *= 2;
  }
  engines.cross_hosts =
      engines.are_apart ? config.trainers.hosts > 1 ||
                              config.trainers.count() + engines.devices > config.trainers.per_host
                        : config.trainers.hosts > 1;
  plan.engine = engine_memory(plan.shape, engines.per_engine, room, place_of(engines),
                              config.workload.prompt_tokens + config.workload.response_tokens);
  plan.update = hand_over(plan.shape, plan.best().layout, engines, config.rates);
}

}  // namespace

Plan make_plan(PlanConfig config) {
  Plan plan{.config = std::move(config)};
  const auto& adapters = plan.config.adapters;
  plan.shape = shape_of(plan.config.model, adapters ? &*adapters : nullptr);
  plan.shape.drafts = plan.config.drafts;
  if (plan.config.has_codes) plan.shape.coded_bytes = coded_weight_bytes(plan.config.model);
  plan.candidates = candidates(plan.shape, divisible_of(plan.config.model), plan.config.workload,
                               plan.config.trainers, plan.config.wanted, plan.config.rates);
  choose_engines(plan);
  plan.fits =
      plan.best().largest_stage() <= plan.config.rates.room() && plan.engine.keys_and_values > 0;
  return plan;
}

}  // namespace slime::estimate
