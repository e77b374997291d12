#pragma once

/// A weight matrix or vector as layers and kernels see it: a view into the flat weight buffer and,
/// while training, a view into the flat gradient buffer at the same offset.
///
/// Gradients do not go through autograd's leaves: the backward of a kernel adds straight into
/// `grad` (in the accumulation precision), so that a micro-batch costs no extra pass and no extra
/// memory.

#include "core/tensor.h"

namespace slime::kernels {

struct MatrixAdapters;

struct Param {
  Tensor value;  // trained precision (bf16, fp16, fp32 or fp64), contiguous view
  Tensor grad;   // fp32 (fp64 when value is fp64), same shape; undefined outside training
  const MatrixAdapters* adapters = nullptr;  // of an embedding table (kernels/adapters.h)

  bool defined() const { return value.defined(); }
};

}  // namespace slime::kernels
