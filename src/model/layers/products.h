#pragma once

/// The first and last matrix product of a layer. A layer that offers them can be fused with its
/// neighbours: selective recomputation fuses the norm into the first, the fused path of decode runs
/// from the last of one layer to the first of the next.

#include "kernels/matrix.h"

namespace slime::model {

/// y = x W^T + b.
struct Product {
  kernels::MatrixParam weight_OI;
  kernels::Param bias_O;  // may be undefined
};

struct Products {
  Product first;
  Product last;
};

}  // namespace slime::model
