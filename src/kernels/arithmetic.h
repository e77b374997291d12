#pragma once

/// Order in which a device adds in a forward pass (docs/decisions/0168-training-arithmetic.md).

namespace slime::kernels {

enum class Arithmetic {
  kFast,  // whichever is fastest for the rows of a call, on whose number a row's bits may depend
  kTraining,  // one order for any number of rows: that of --true-on-policy
};

}  // namespace slime::kernels
