#pragma once

/// The tensor type of the project: ATen's. Headers that mention tensors include this and nothing
/// else of LibTorch.
///
/// A Tensor is a shared handle: `const Tensor&` protects the handle, not the numbers. Functions
/// that change their argument end in `_`. Names end with the tensor's dimensions in capitals
/// (logits_TV); each file has a legend.

#include <ATen/core/Tensor.h>

namespace slime {

using Tensor = at::Tensor;

}  // namespace slime
