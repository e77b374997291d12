#include "cluster/placement.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace slime::cluster {

std::string Placement::problem() const {
  if (places_per_node == 0) return "";
  const int there = num_nodes * places_per_node;
  if (places_needed() > there) {
    return fmt::format(
        "the run needs {} places, {} for training (--actor-num-nodes x "
        "--actor-num-gpus-per-node){}; "
        "{} node{} with {} each (--num-gpus-per-node) {} {}",
        places_needed(), num_ranks,
        num_engines > 0 ? fmt::format(" and {} for engines (--rollout-num-gpus)",
                                      num_engines * places_per_engine)
                        : "",
        num_nodes, num_nodes == 1 ? "" : "s", places_per_node, num_nodes == 1 ? "has" : "have",
        there);
  }
  for (int engine = 0; engine < num_engines; ++engine) {
    if (of_engine(engine).node == of_engine(engine, places_per_engine - 1).node) continue;
    return fmt::format(
        "engine {} would lie on two nodes: --rollout-num-gpus-per-engine {} behind {} places for "
        "training does not fit into nodes of {} (--num-gpus-per-node)",
        engine, places_per_engine, num_ranks, places_per_node);
  }
  return "";
}

WorkerPlace Placement::of_place(int place) const {
  const int node = places_per_node == 0 ? 0 : place / places_per_node;
  return {.node = node, .device = has_devices ? place - node * places_per_node : -1};
}

int Placement::most_ranks_of_a_node() const {
  return places_per_node == 0 ? num_ranks : std::min(num_ranks, places_per_node);
}

int Placement::most_engines_of_a_node() const {
  std::vector<int> counts(static_cast<std::size_t>(num_nodes));
  for (int engine = 0; engine < num_engines; ++engine) ++counts.at(of_engine(engine).node);
  return *std::ranges::max_element(counts);
}

}  // namespace slime::cluster
