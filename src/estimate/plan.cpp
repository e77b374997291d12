#include "estimate/plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
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

std::string why_no_engine(const PlanConfig& config, int64_t per_engine) {
  return config.why_no_engine ? config.why_no_engine(per_engine) : "";
}

/// How many devices an engine may have, of those that are tried.
std::vector<int64_t> sizes_of_engines(const PlanConfig& config, int64_t devices) {
  std::vector<int64_t> sizes;
  for (int64_t size = 1; size <= devices; size *= 2) {
    if (devices % size == 0 && why_no_engine(config, size).empty()) sizes.push_back(size);
  }
  return sizes;
}

void require_size(const PlanConfig& config, const Engines& engines) {
  if (engines.per_engine < 1 || engines.devices % engines.per_engine != 0) {
    throw ConfigError(
        fmt::format("--rollout-num-gpus-per-engine {}: should divide the {} devices of engines",
                    engines.per_engine, engines.devices));
  }
  const std::string why = why_no_engine(config, engines.per_engine);
  if (why.empty()) return;
  throw ConfigError(fmt::format("{}; of {} devices, engines of {} work", why, engines.devices,
                                fmt::join(sizes_of_engines(config, engines.devices), " or ")));
}

/// The smallest size that leaves room for keys and values, or else the largest, of those that a run takes.
void choose_size(Plan& plan, const std::function<bool(int64_t)>& takes_too_much) {
  const int64_t devices = plan.engines.devices;
  for (int64_t size = 1; size <= devices; size *= 2) {
    if (devices % size != 0) continue;
    const std::string why = why_no_engine(plan.config, size);
    if (!why.empty()) {
      if (plan.refused_engine.empty()) plan.refused_engine = why;
      continue;
    }
    plan.engines.per_engine = size;
    if (!takes_too_much(size)) break;
  }
  if (!plan.refused_engine.empty()) plan.engine_sizes = sizes_of_engines(plan.config, devices);
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
    require_size(config, engines);
  } else {
    choose_size(plan, takes_too_much);
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
                               plan.config.trainers, plan.config.wanted, plan.config.rates,
                               plan.config.why_no_layout);
  choose_engines(plan);
  plan.fits =
      plan.best().largest_stage() <= plan.config.rates.room() && plan.engine.keys_and_values > 0;
  return plan;
}

}  // namespace slime::estimate
