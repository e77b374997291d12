#pragma once

/// Tensors of a model of which ranks hold slices, stages and shards, brought together at rank 0 one
/// after the other: for files, which know of no layout, and for engines that have the model whole.

#include <string>
#include <vector>

#include "comm/mesh.h"
#include "model/weights.h"

namespace slime::train {

/// What of a flat buffer a rank has: all of it, as of weights, or its shard (train/shards.h), as of
/// master weights and moments.
enum class BufferForm { kWhole, kShard };

class WholeTensors final {
 public:
  /// All ranks make it together, each of its own weights; both outlive the object.
  WholeTensors(const comm::Mesh& mesh, const model::Weights& weights);

  struct Entry {
    std::string name;
    std::vector<int64_t> shape;
  };
  /// Of the whole model, the same on all ranks: each name once.
  const std::vector<Entry>& entries() const { return entries_; }

  /// Tensor `index` of entries(), of this rank's `buffer` and those of the others. All ranks call it
  /// together. Whole at rank 0, undefined elsewhere. One rank gets a view of its buffer.
  Tensor gather(std::size_t index, const Tensor& buffer, BufferForm form) const;

 private:
  /// A slice that a rank holds, as elements of its flat buffer.
  struct Slice {
    int rank = 0;
    std::vector<int64_t> shape;
    model::Slice slice;
    comm::Range elements;
  };
  comm::Range brought(const Slice& slice, BufferForm form) const;

  const comm::Mesh& mesh_;
  const model::Weights& weights_;
  std::vector<int64_t> num_elements_;  // of each rank's buffer
  std::vector<Entry> entries_;
  std::vector<std::vector<Slice>> slices_;  // of each entry, each part of it once
};

}  // namespace slime::train
