#include "kernels/cuda/attention/decode_records.h"

#include <ATen/ATen.h>

#include "kernels/cuda/cuda_device.h"

namespace slime::kernels::cuda {

DecodeRecords::DecodeRecords(const DecodeLaunch& launch, int64_t num_heads, int64_t size) {
  const auto floats = launch.unit_starts.options().dtype(at::kFloat);
  sums = at::empty({launch.num_records, num_heads, size}, floats);
  weights = at::empty({launch.num_records, num_heads, 2}, floats);
  plan.num_units = static_cast<int>(launch.num_units);
  plan.unit_starts = array<int32_t>(launch.unit_starts);
  plan.segments = static_cast<const DecodeSegment*>(pointer(launch.segments));
  plan.members = static_cast<const DecodeMember*>(pointer(launch.members));
  plan.record_starts = array<int32_t>(launch.record_starts);
  plan.record_sums = sums.data_ptr<float>();
  plan.record_weights = reinterpret_cast<float2*>(weights.data_ptr<float>());
}

}  // namespace slime::kernels::cuda
