#include "kernels/routed_experts.h"

#include "kernels/device.h"

namespace slime::kernels {

const ExpertKernels* expert_kernels_for(const Tensor& tensor) {
  return dynamic_cast<const ExpertKernels*>(&kernels_for(tensor));
}

}  // namespace slime::kernels
