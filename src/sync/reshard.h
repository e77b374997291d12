#pragma once

/// New weights for engines that lie otherwise over the same devices than the ranks that train: each rank
/// gets what its engine has of the model from the ranks that hold it, device to device. A rank that
/// holds it itself copies it; otherwise the nearest one sends it, which is one of its own host where
/// there is one.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "comm/mesh.h"
#include "model/weight_layout.h"
#include "model/weights.h"

namespace slime::sync {

class Reshard final {
 public:
  /// All ranks make it together: who needs which part of what is computed here, once. `from`: the
  /// trained weights of this rank, or codes of them; `to`: those of its engine, with tensors of the same
  /// names, precision and format, on any device. All three outlive the object. Throws BugError for
  /// weights that nobody has.
  Reshard(const comm::Mesh& mesh, const model::Weights& from, const model::Weights& to);

  /// Overwrites the weights and constants of `to`. All ranks call it together; when it returns all of
  /// them are done, on GPUs as well. Nobody reads `to` or changes `from` meanwhile. What is not sent
  /// from its place or received in its place takes at most half a GiB at a time, or as much as a tensor
  /// that is larger; what lies apart in memory is copied once for each engine that gets it.
  void run() const;

  /// That this rank gets from others in each run().
  int64_t bytes_received() const { return bytes_received_; }

 private:
  /// A part of a tensor and who has it; `source` and `target` count stored parts (model/stored_parts.h),
  /// then constants, of the ranks' weights.
  struct Move {
    int from = 0;
    int to = 0;
    std::size_t source = 0;
    std::size_t target = 0;
    model::Box source_box;  // of what the ranks have of the tensor
    model::Box target_box;
    /// In the sender's flat buffer, where the part is one run of it; otherwise -1.
    int64_t begin = -1;
  };
  /// What goes in one message: one part, or several that lie behind one another in the flat buffer.
  struct Shipment {
    std::vector<Move> moves;
    int from() const { return moves.front().from; }
    int to() const { return moves.front().to; }
    /// Of the flat buffer; empty where the part is no run of it.
    comm::Range run;
  };
  class Plan;
  class Views;

  void run(const std::vector<Shipment>& shipments, const Views& from, const Views& to) const;

  const comm::Mesh& mesh_;
  const model::Weights& from_;
  const model::Weights& to_;
  /// This rank's part of each, in the same order everywhere.
  std::vector<std::vector<Shipment>> batches_;
  int64_t bytes_received_ = 0;
};

}  // namespace slime::sync
