#pragma once

/// The products with which a layer begins and ends. A layer that offers them lets others join in:
/// selective recomputation fuses the norm into the first, the chain of decode runs from the last of
/// one layer to the first of the next.

#include "kernels/param.h"

namespace slime::model {

/// y = x W^T + b.
struct Product {
  kernels::Param weight_OI;
  kernels::Param bias_O;  // may be undefined
};

struct Products {
  Product first;
  Product last;
};

}  // namespace slime::model
