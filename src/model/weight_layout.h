#pragma once

/// Weight layout of a rank: its slices of the model's weights, and their places in its flat buffer.

#include <cstdint>
#include <string>
#include <vector>

#include "comm/mesh.h"
#include "model/stored_parts.h"

namespace slime::model {

/// As StoredPart. Of a constant, which every rank that has it has whole, offset means nothing.
struct TensorLayout {
  std::string name;
  std::vector<int64_t> shape;  // of what the rank holds
  std::vector<int64_t> full_shape;
  Slices slices;
  int64_t offset = 0;
  int64_t element = 0;  // bytes
};

struct WeightLayout {
  int64_t num_elements = 0;
  int64_t experts_begin = 0;
  std::vector<TensorLayout> tensors;    // as stored_parts(), of plain weights as Weights::tensors()
  std::vector<TensorLayout> constants;  // as Weights::constants()
};

/// Of all ranks of the world, in their order. All call it together; `what` stands in messages.
std::vector<WeightLayout> gather_layouts(const comm::Mesh& mesh, const Weights& weights,
                                         const char* what);

}  // namespace slime::model
