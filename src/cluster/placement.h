#pragma once

/// Placement of workers: the node and device that each one gets.
///
/// The places of all nodes are one list, node by node, as the original's placement group is: trainer
/// ranks have the first ones, engines those behind them.

#include <cstdint>
#include <string>

#include "cluster/launcher.h"

namespace slime::cluster {

struct Placement {
  int num_nodes = 1;
  int places_per_node = 0;  // 0: as many as are asked for, on one node
  int num_ranks = 1;        // that train
  int num_engines = 0;      // in processes of their own
  int places_per_engine = 1;
  bool has_devices = false;  // a place is a GPU; else it is a share of the cores

  int places_needed() const { return num_ranks + num_engines * places_per_engine; }
  /// Why there is no such placement; empty: there is.
  std::string problem() const;

  WorkerPlace of_rank(int rank) const { return of_place(rank); }
  /// Of the engine's places, which are on one node, from `part` on.
  WorkerPlace of_engine(int engine, int part = 0) const {
    WorkerPlace place = of_place(num_ranks + engine * places_per_engine + part);
    if (has_devices) place.num_devices = places_per_engine - part;
    return place;
  }
  /// How many share a node, where most do: what the cores of a node are divided by.
  int most_ranks_of_a_node() const;
  int most_engines_of_a_node() const;

 private:
  WorkerPlace of_place(int place) const;
};

/// A run's nodes, and who is where. Both outlive whatever starts workers.
struct Hosts {
  Launcher& launcher;
  Placement placement;
};

}  // namespace slime::cluster
