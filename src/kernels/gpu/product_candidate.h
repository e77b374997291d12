#pragma once

/// A kernel that can compute a product of some shape, as measurements see it.

#include <string>

namespace slime::kernels {

struct ProductCandidate {
  std::string name;             // "batch", "skinny", "library-0" in cuBLASLt's order
  double microseconds = 0;      // on cold weights, in a row
  bool has_ruling_bits = true;  // those of the kernel whose bits results have
};

}  // namespace slime::kernels
