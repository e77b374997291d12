#include "roles/code_slices.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>

#include "comm/mesh.h"
#include "comm/unconnected_group.h"
#include "core/error.h"
#include "model/network.h"
#include "roles/networks.h"
#include "roles/rank_tasks.h"

namespace slime::roles {
namespace {

comm::Mesh unconnected_mesh(const comm::ParallelLayout& layout, int rank) {
  return {layout, rank, [rank](comm::Axis, const std::vector<int>& members) {
            const auto place = std::ranges::find(members, rank) - members.begin();
            return std::make_unique<comm::UnconnectedGroup>(static_cast<int>(place),
                                                            static_cast<int>(members.size()));
          }};
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

/// Why this rank cannot hold its slices as codes; empty: it can. Nothing where it cannot hold plain ones.
std::optional<std::string> why_no_codes(const model::ModelConfig& model, const comm::Mesh& mesh,
                                        kernels::MatrixFormat matrices) {
  try {
    model::make_blank_network(model, {.device = at::kMeta}, mesh);
  } catch (const ConfigError&) {
    return std::nullopt;
  }
  try {
    model::make_blank_network(model, {.matrices = matrices, .device = at::kMeta}, mesh);
  } catch (const ConfigError& error) {
    return first_line(error.what());
  }
  return "";
}

/// Of engines of fewer ranks.
std::string what_works(const model::ModelConfig& model, int64_t num_ranks,
                       kernels::MatrixFormat matrices) {
  std::vector<int64_t> counts;
  for (int64_t count = 1; count < num_ranks; ++count) {
    if (num_ranks % count != 0) continue;
    const auto mesh = unconnected_mesh(comm::engine_layout(static_cast<int>(count)), 0);
    if (why_no_codes(model, mesh, matrices) == "") counts.push_back(count);
  }
  return fmt::format("{}", fmt::join(counts, " or "));
}

void check_engines(const config::RunConfig& config, const model::ModelConfig& model,
                   std::vector<std::string>& problems) {
  const int64_t num_ranks = config.rollout_num_gpus_per_engine;
  const kernels::MatrixFormat matrices = engine_matrices(config);
  const auto why = why_no_codes(
      model, unconnected_mesh(comm::engine_layout(static_cast<int>(num_ranks)), 0), matrices);
  if (!why || why->empty()) return;
  problems.push_back(
      fmt::format("--rollout-num-gpus-per-engine {} with --rollout-precision fp8: {}; ranks of an "
                  "engine hold whole blocks of 128: use {}",
                  num_ranks, *why, what_works(model, num_ranks, matrices)));
}

/// Each makes codes of its own slices.
void check_trainers(const config::RunConfig& config, const model::ModelConfig& model,
                    std::vector<std::string>& problems) {
  const comm::ParallelLayout layout = layout_of(config);
  std::set<int> stages;
  for (int rank = 0; rank < layout.world_size(); ++rank) {
    const comm::Mesh mesh = unconnected_mesh(layout, rank);
    if (!stages.insert(mesh.at().pp).second) continue;
    const auto why = why_no_codes(model, mesh, engine_matrices(config));
    if (!why || why->empty()) continue;
    problems.push_back(
        fmt::format("--rollout-precision fp8: rank {} that trains: {}; with engines over the ranks "
                    "that train these hold whole blocks of 128 too: use a smaller "
                    "--tensor-model-parallel-size, or engines apart (--rollout-num-gpus without "
                    "--colocate)",
                    rank, *why));
    return;
  }
}

}  // namespace

void check_code_slices(const config::RunConfig& config, const model::ModelConfig& model,
                       std::vector<std::string>& problems) {
  if (!config.has_codes() || !config.generates() || config.has_external_engines()) return;
  const bool is_on_each = config.has_engine_on_each_rank();
  const bool has_ranks = config.num_engine_workers > 0 || is_on_each;
  if (has_ranks && config.rollout_num_gpus_per_engine > 1) check_engines(config, model, problems);
  if (is_on_each &&
      (config.rollout_num_gpus_per_engine > 1 || !layout_of(config).holds_model_whole()))
    check_trainers(config, model, problems);
}

}  // namespace slime::roles
