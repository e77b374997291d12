#include "engine/step_block.h"

#include <ATen/ATen.h>

namespace slime::engine {

StepBlock::StepBlock(int64_t capacity_bytes, at::Device device)
    : capacity_((capacity_bytes + kAlignment - 1) / kAlignment * kAlignment),
      device_(at::zeros({capacity_}, at::TensorOptions(at::kByte).device(device))) {
  for (Tensor& block : host_)
    block = at::zeros({capacity_}, at::TensorOptions(at::kByte)).pin_memory();
}

void StepBlock::begin(bool describes) {
  describes_ = describes;
  turn_ = 1 - turn_;
  used_ = 0;
}

Tensor StepBlock::last_on_device(at::ScalarType type, int64_t count) const {
  if (!describes_) return {};
  return device_.narrow(0, last_, count * static_cast<int64_t>(c10::elementSize(type))).view(type);
}

void StepBlock::send() {
  device_.narrow(0, 0, used_).copy_(host_[turn_].narrow(0, 0, used_), /*non_blocking=*/true);
}

}  // namespace slime::engine
