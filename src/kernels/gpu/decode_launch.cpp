#include "kernels/gpu/decode_launch.h"

#include <ATen/ATen.h>

namespace slime::kernels {
namespace {

template <typename T>
Tensor integers_of(const std::vector<T>& list, at::Device device) {
  static_assert(sizeof(T) % sizeof(int32_t) == 0);
  const auto* first = reinterpret_cast<const int32_t*>(list.data());
  const auto count = static_cast<int64_t>(list.size() * sizeof(T) / sizeof(int32_t));
  return at::tensor(at::ArrayRef<int32_t>(first, count), at::kInt).to(device);
}

}  // namespace

DecodeLaunch to_launch(const DecodePlan& plan, at::Device device) {
  DecodeLaunch launch;
  launch.num_units = plan.room.units;
  launch.num_records = plan.room.records;
  launch.unit_starts = integers_of(plan.unit_starts, device);
  launch.segments = integers_of(plan.segments, device);
  launch.members = integers_of(plan.members, device);
  launch.record_starts = integers_of(plan.record_starts, device);
  return launch;
}

}  // namespace slime::kernels
