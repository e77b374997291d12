#include <ATen/ATen.h>

#include "core/error.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/cuda_gpu.h"
#include "kernels/cuda/delta/paged_delta.h"

namespace slime::kernels::cuda {

Tensor CudaGpu::paged_delta(const DeltaCall& call) const {
  const PagedBatch& batch = *call.batch;
  const DeltaShape& shape = call.shape;
  const Tensor& mixed_TE = call.in.mixed_TE;
  check(batch.state_S.defined(), "the step says where its sequences have their states");
  check(mixed_TE.size(1) == shape.channels() && mixed_TE.stride(1) == 1,
        "channels of a row lie side by side");
  check(call.states_PX.stride(1) == 1 &&
            call.states_PX.size(1) == shape.state() + (call.taps - 1) * shape.channels(),
        "a state has its last tokens and its heads");
  const Tensor decay_TN = call.in.decay_TN.contiguous(), rate_TN = call.in.rate_TN.contiguous(),
               conv = call.conv.contiguous();
  const auto floats = mixed_TE.options().dtype(at::kFloat);
  const Tensor unit_TE = at::empty({mixed_TE.size(0), shape.channels()}, floats);
  Tensor out_TC = at::empty({mixed_TE.size(0), shape.values()}, floats);
  DeltaRows rows;
  rows.number = number_of(mixed_TE);
  rows.mixed_TE = mixed_TE.const_data_ptr();
  rows.row_stride = mixed_TE.stride(0);
  rows.decay_TN = decay_TN.const_data_ptr<float>();
  rows.rate_TN = rate_TN.const_data_ptr<float>();
  rows.of_taps = number_of(conv);
  rows.tap_EJ = conv.const_data_ptr();
  rows.row_sequence_T = batch.row_sequence_T.const_data_ptr<int32_t>();
  rows.query_starts = batch.query_starts.const_data_ptr<int32_t>();
  rows.state_S = batch.state_S.const_data_ptr<int32_t>();
  rows.states = call.states_PX.data_ptr<float>();
  rows.state_stride = call.states_PX.stride(0);
  rows.unit_TE = unit_TE.data_ptr<float>();
  rows.out_TC = out_TC.data_ptr<float>();
  rows.rows = mixed_TE.size(0);
  rows.unit_eps = static_cast<float>(kDeltaEps);
  rows.sequences = static_cast<int>(batch.state_S.size(0));
  rows.taps = static_cast<int>(call.taps);
  rows.key_heads = static_cast<int>(shape.key_heads);
  rows.value_heads = static_cast<int>(shape.value_heads);
  rows.key_dim = static_cast<int>(shape.key_dim);
  rows.value_dim = static_cast<int>(shape.value_dim);
  cuda::paged_delta(rows, stream_of(mixed_TE));
  return out_TC;
}

}  // namespace slime::kernels::cuda
