#pragma once

/// Tensors of a model of which ranks hold slices, stages and shards, brought together at rank 0 one
/// after the other: for files, which know of no layout, and for engines that have the model whole.

#include <string>
#include <utility>
#include <vector>

#include "comm/mesh.h"
#include "model/weights.h"
#include "train/shards.h"

namespace slime::train {

/// What of a flat buffer a rank has: all of it, as of weights, or its shards (train/shards.h), as of
/// master weights and moments.
enum class BufferForm { kWhole, kShards };

/// That: one tensor, or one for each part of the buffer.
struct HeldBuffer {
  std::vector<Tensor> tensors;
  BufferForm form = BufferForm::kWhole;

  static HeldBuffer whole(const Tensor& buffer_N) { return {{buffer_N}, BufferForm::kWhole}; }
  static HeldBuffer shards(std::vector<Tensor> shards) {
    return {std::move(shards), BufferForm::kShards};
  }
};

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
  Tensor gather(std::size_t index, const HeldBuffer& buffer) const;

 private:
  /// What a rank holds of a tensor, as elements of its flat buffer.
  struct Held {
    int rank = 0;
    std::vector<int64_t> shape;
    model::Slices slices;
    comm::Range elements;
  };
  /// The part of the rank's buffer that it is in.
  std::size_t part_of(const Held& held) const;
  /// Ranks that have the same elements in the same place.
  std::vector<int> sharers_of(const Held& held) const;
  struct Brought {
    comm::Range elements;  // by this rank
    int64_t begin = 0;     // where the tensor that it holds begins
    std::size_t tensor = 0;
  };
  Brought brought(const Held& held, BufferForm form) const;

  const comm::Mesh& mesh_;
  const model::Weights& weights_;
  std::vector<std::vector<ShardedPart>> parts_;  // of each rank's buffer
  std::vector<Entry> entries_;
  std::vector<std::vector<Held>> held_;  // of each entry, each part of it once
};

/// The constants of all pipeline stages, in no order. All ranks call it together.
std::vector<model::NamedConstant> whole_constants(const comm::Mesh& mesh,
                                                  const model::Weights& weights);

}  // namespace slime::train
