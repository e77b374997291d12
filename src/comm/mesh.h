#pragma once

/// The ranks of a run as one of them sees it: sizes, where it is, and a group per axis.
///
/// Handed to whatever builds networks (model/network.h) and to the trainer. Axes with the same
/// members share a group, and an axis of one member has a SingleGroup, so that one device is the
/// case in which nothing is connected.

#include <array>
#include <functional>
#include <memory>
#include <vector>

#include "comm/parallel_layout.h"
#include "comm/rank_group.h"
#include "comm/side_stream.h"

namespace slime::comm {

class Mesh final {
 public:
  /// Connects `members` (world ranks, ascending, this one among them, at least two).
  using MakeGroup =
      std::function<std::unique_ptr<RankGroup>(Axis axis, const std::vector<int>& members)>;

  /// Calls make_group for each distinct group of this rank, on all ranks in the order of Axis. A
  /// group that several axes share has the name of the first. Throws ConfigError as validate()
  /// does.
  Mesh(const ParallelLayout& layout, int rank, const MakeGroup& make_group);
  Mesh(const Mesh&) = delete;
  Mesh& operator=(const Mesh&) = delete;

  /// One rank. It has no state and no connection, so one of it is enough for the process.
  static const Mesh& single();

  const ParallelLayout& sizes() const { return sizes_; }
  const Coordinates& at() const { return at_; }
  int rank() const { return rank_; }  // in the world

  RankGroup& group(Axis axis) const { return *groups_[static_cast<std::size_t>(axis)]; }
  RankGroup& world() const { return group(Axis::kWorld); }
  RankGroup& tp() const { return group(Axis::kTp); }
  RankGroup& cp() const { return group(Axis::kCp); }
  RankGroup& dp() const { return group(Axis::kDp); }
  RankGroup& pp() const { return group(Axis::kPp); }
  /// The ranks that have the same dense weights and other tokens: among them gradients are summed
  /// and the optimizer is sharded.
  RankGroup& dp_cp() const { return group(Axis::kDpCp); }
  /// The ranks that compute the same samples: together they hold the model once.
  RankGroup& model() const { return group(Axis::kModel); }
  RankGroup& etp() const { return group(Axis::kEtp); }
  RankGroup& ep() const { return group(Axis::kEp); }
  /// The same for the weights of experts.
  RankGroup& edp() const { return group(Axis::kEdp); }

  /// For messages between the products of layers: of the thread that computes.
  SideStream& layer_messages() const { return layer_messages_; }

 private:
  ParallelLayout sizes_;
  int rank_;
  Coordinates at_;
  std::vector<std::unique_ptr<RankGroup>> owned_;
  std::array<RankGroup*, kNumAxes> groups_{};
  mutable SideStream layer_messages_;
};

}  // namespace slime::comm
