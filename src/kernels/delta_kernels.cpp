#include "kernels/delta_kernels.h"

#include "kernels/device.h"

namespace slime::kernels {

const DeltaKernels* delta_kernels_for(const Tensor& tensor) {
  return dynamic_cast<const DeltaKernels*>(&kernels_for(tensor));
}

}  // namespace slime::kernels
