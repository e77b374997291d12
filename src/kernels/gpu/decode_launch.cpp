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

TileLaunch to_launch(const UnitPlan& plan, int64_t rows, at::Device device) {
  TileLaunch launch;
  launch.tile = plan.tile;
  launch.num_units = plan.num_units;
  launch.unit_sequence_U = integers_of(plan.sequence_U, device);
  launch.unit_tile_U = integers_of(plan.tile_U, device);
  launch.unit_chunk_U = integers_of(plan.chunk_U, device);
  launch.unit_is_on_U =
      at::tensor(at::ArrayRef<uint8_t>(plan.is_on_U.data(), plan.is_on_U.size()), at::kByte)
          .to(device);
  launch.chunk_tokens = integers_of(std::vector<int32_t>{plan.chunk_tokens}, device);
  launch.num_rows = integers_of(std::vector<int32_t>{static_cast<int32_t>(rows)}, device);
  launch.num_partials = plan.num_partials;
  launch.partial_starts = integers_of(plan.partial_starts, device);
  launch.merge_starts = integers_of(plan.merge_starts, device);
  return launch;
}

}  // namespace slime::kernels
