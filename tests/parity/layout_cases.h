#pragma once

/// Common parts of layout tests: a training step, or some and a checkpoint, on ranks that are
/// threads, each with its part of the network, connected as processes are; and the whole of what
/// comes out.

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "core/clock.h"
#include "model/save.h"
#include "rank_threads.h"
#include "train/checkpoint.h"
#include "train/whole_tensors.h"
#include "train_cases.h"

namespace slime::parity {

using namespace train;
using comm::ParallelLayout;

inline const model::Precision kExact = model::Precision::of("float64");

/// A folder that is gone with the test.
struct Scratch {
  std::filesystem::path path = std::filesystem::temp_directory_path() /
                               fmt::format("slime_layouts_{}_{}", ::getpid(), count++);
  Scratch() { std::filesystem::create_directories(path); }
  ~Scratch() { std::filesystem::remove_all(path); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  static inline int count = 0;
};

inline std::string name_of(const ParallelLayout& layout) {
  return fmt::format("dp {} tp {}{} ep {} etp {} cp {}{} pp {} in {} ({} and {})", layout.dp,
                     layout.tp, layout.sequence_parallel ? " sp" : "", layout.ep, layout.etp,
                     layout.cp, layout.contiguous_context ? " contiguous" : "", layout.pp,
                     layout.chunks, layout.first_layers, layout.last_layers);
}

struct WholeOutcome {
  algo::MetricSums sums;
  std::map<std::string, Tensor> grads;
  double norm = 0;
};

inline OtherNetworks others_of(const TrainConfig& config, const std::filesystem::path& directory,
                               const comm::Mesh& mesh) {
  OtherNetworks others;
  if (needs_reference(config)) others.reference = model::load_network(directory, kExact, mesh);
  return others;
}

/// Before a trainer takes a network of a rank: adapters beside it.
using Prepare = std::function<void(model::Network& network, const comm::Mesh& mesh)>;

/// Sums and gradients of the batch as one training step, brought together at rank 0.
inline WholeOutcome gradients(const std::filesystem::path& directory, const TrainBatch& batch,
                              TrainConfig config, const ParallelLayout& layout,
                              const Prepare& prepare = {}) {
  config.batching.dp = layout.dp;
  WholeOutcome outcome;
  const SystemClock clock;
  on_mesh(layout, [&](const comm::Mesh& mesh) {
    const auto network = model::load_network(directory, kExact, mesh);
    if (prepare) prepare(*network, mesh);
    Trainer trainer(*network, config, clock, others_of(config, directory, mesh), mesh);
    const algo::MetricSums sums =
        trainer.accumulate_gradients(trainer.divide(batch).at(mesh.at().dp));
    const double norm = std::sqrt(trainer.optimizer().gradient_squares());
    const WholeTensors layout_of(mesh, network->trained());
    const HeldBuffer own =
        HeldBuffer::shards(trainer.optimizer().own_shards_of(network->trained().grad()));
    for (std::size_t i = 0; i < layout_of.entries().size(); ++i) {
      const Tensor grad = layout_of.gather(i, own);
      if (mesh.rank() == 0) outcome.grads[layout_of.entries()[i].name] = grad.clone();
    }
    if (mesh.rank() == 0) {
      outcome.sums = sums;
      outcome.norm = norm;
    }
  });
  return outcome;
}

inline void expect_same(const WholeOutcome& other, const WholeOutcome& plain) {
  EXPECT_NEAR(other.norm, plain.norm, 1e-10 * plain.norm);
  ASSERT_EQ(other.sums.size(), plain.sums.size());
  for (const auto& [name, value] : plain.sums)
    EXPECT_NEAR(other.sums.at(name), value, 1e-10 * std::max(1.0, std::abs(value))) << name;
  ASSERT_EQ(other.grads.size(), plain.grads.size());
  int64_t unvisited = 0;  // weights of experts that no token visits
  for (const auto& [name, grad] : plain.grads) {
    const double size = grad.abs().max().item<double>();
    if (size == 0 && name.find(".experts.") != std::string::npos) ++unvisited;
    EXPECT_TRUE(size > 0 || name.find(".experts.") != std::string::npos ||
                name.find(".indexer.") != std::string::npos)
        << name;
    ASSERT_EQ(other.grads.at(name).sizes(), grad.sizes()) << name;
    EXPECT_LE((other.grads.at(name) - grad).abs().max().item<double>(), 1e-10 * size) << name;
  }
  EXPECT_LT(unvisited, static_cast<int64_t>(plain.grads.size()) / 3);
}

inline void expect_layout_invariant(const std::filesystem::path& directory, const TrainBatch& batch,
                                    const TrainConfig& config,
                                    const std::vector<ParallelLayout>& layouts,
                                    const Prepare& prepare = {}) {
  const WholeOutcome plain = gradients(directory, batch, config, {}, prepare);
  for (const ParallelLayout& layout : layouts) {
    SCOPED_TRACE(name_of(layout));
    expect_same(gradients(directory, batch, config, layout, prepare), plain);
  }
}

/// Shared prefixes, and several micro-batches for each rank.
inline TrainConfig with_batching(TrainConfig config, int64_t executions, int64_t max_tokens) {
  config.batching.global_batch_size = executions;
  config.batching.use_dynamic_batch_size = true;
  config.batching.max_tokens_per_gpu = max_tokens;
  config.packing = {true, 1};
  config.bucket_elements = 10'000;  // some a layer
  config.lr = {.lr = 1e-3, .style = DecayStyle::kConstant};
  return config;
}

inline TrainConfig grpo(int64_t max_tokens = 50) {
  return with_batching(grpo_config(), 12, max_tokens);
}

inline TrainBatch groups() { return make_train_batch(made_up_groups(3, 4, 320), {}); }

/// What checkpoints hold at most.
inline const model::Precision kStored = model::Precision::of("float32");

struct Trained {
  std::vector<Metrics> metrics;
  std::map<std::string, Tensor> weights;
};

/// Two steps and a checkpoint when there is none in `root`, one more step otherwise; and the weights at
/// the start. Metrics are the same on all ranks.
inline Trained go_on(const std::filesystem::path& model, const std::filesystem::path& root,
                     const TrainBatch& batch, TrainConfig config, const ParallelLayout& layout) {
  config.batching.dp = layout.dp;
  const auto ignore = [](const std::string&) {};
  const auto found = find_checkpoint(root, ignore);
  std::vector<Trained> of_rank(static_cast<std::size_t>(layout.world_size()));
  const SystemClock clock;
  on_mesh(layout, [&](const comm::Mesh& mesh) {
    const auto network = model::load_network(found ? found->directory : model, kStored, mesh);
    Trainer trainer(*network, config, clock, {}, mesh);
    if (found) restore_trainer(*found, trainer, 0, ignore);
    Trained& own = of_rank[static_cast<std::size_t>(mesh.rank())];
    const auto whole =
        mesh.rank() == 0 ? model::make_blank_network(network->config(), kStored) : nullptr;
    gather_weights(trainer, whole.get());
    if (whole) {
      for (const model::NamedWeight& weight : whole->weights().tensors())
        own.weights[weight.name] = model::Weights::view(whole->weights().flat(), weight).clone();
      for (const model::NamedConstant& constant : whole->weights().constants())
        own.weights[constant.name] = constant.value.clone();
    }
    for (int step = 0; step < (found ? 1 : 2); ++step) {
      const TrainReport report = trainer.train(trainer.divide(batch).at(mesh.at().dp));
      for (const StepReport& of_step : report.steps) own.metrics.push_back(of_step.metrics);
      own.metrics.push_back(report.rollout);
    }
    if (found) return;
    if (mesh.rank() == 0) {
      save_checkpoint({.root = root}, 2, trainer, {});
    } else {
      join_save(trainer, true);
    }
  });
  for (const Trained& other : of_rank) EXPECT_EQ(other.metrics, of_rank[0].metrics);
  return of_rank[0];
}

/// Written on `from`, read by each of `readers`: the same weights, and the same next step.
inline void expect_resumed_anywhere(const std::filesystem::path& model, TrainConfig config,
                                    const ParallelLayout& from,
                                    const std::vector<ParallelLayout>& readers) {
  const Scratch root;
  config.policy.kl_loss.reset();
  const TrainBatch batch = groups();
  go_on(model, root.path, batch, config, from);
  const Trained plain = go_on(model, root.path, batch, config, from);
  for (const ParallelLayout& reader : readers) {
    SCOPED_TRACE(name_of(reader));
    const Trained other = go_on(model, root.path, batch, config, reader);
    for (const auto& [name, weight] : plain.weights)
      EXPECT_TRUE(at::equal(other.weights.at(name), weight)) << name;
    ASSERT_EQ(other.metrics.size(), plain.metrics.size());
    for (std::size_t i = 0; i < plain.metrics.size(); ++i) {
      for (const auto& [name, value] : plain.metrics[i])
        EXPECT_NEAR(other.metrics[i].at(name), value, 1e-4 * std::max(1.0, std::abs(value)))
            << name;
    }
  }
}

}  // namespace slime::parity
