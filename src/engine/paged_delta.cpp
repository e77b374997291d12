/// The engine's gated delta rule: states of requests are read, advanced and left in the cache.

#include <ATen/ATen.h>

#include <cstring>

#include "core/error.h"
#include "engine/paged_attention.h"
#include "kernels/causal_conv.h"
#include "kernels/cpu/delta_step.h"
#include "kernels/trace.h"

namespace slime::engine {
namespace {

/// Some of a step's rows, and the states that they advance.
struct StateRows {
  std::vector<int64_t> rows;               // of the step
  std::vector<float*> states;              // of each sequence
  std::vector<kernels::Segment> segments;  // of these rows
};

kernels::DeltaTokens taken(const kernels::DeltaTokens& in, const std::vector<int64_t>& rows) {
  const Tensor row_R = at::tensor(rows, at::kLong);
  const auto take = [&](const Tensor& x) {
    return x.index_select(0, row_R).to(at::kFloat).contiguous();
  };
  return {take(in.mixed_TE), take(in.decay_TN), take(in.rate_TN)};
}

Tensor weights_of_taps(const model::DeltaLayer& layer) {
  return layer.conv.value.view({-1, layer.taps}).t().to(at::kFloat).contiguous();
}

/// One token of each sequence.
Tensor stepped(const model::DeltaLayer& layer, const kernels::DeltaTokens& in,
               std::span<float* const> states) {
  const Tensor tap_JE = weights_of_taps(layer), scratch_SE = at::empty_like(in.mixed_TE),
               out_SC = at::empty({in.mixed_TE.size(0), layer.shape.values()}, at::kFloat);
  kernels::delta_step({.shape = layer.shape,
                       .taps = layer.taps,
                       .tap_JE = tap_JE.const_data_ptr<float>(),
                       .mixed_SE = in.mixed_TE.const_data_ptr<float>(),
                       .decay_SN = in.decay_TN.const_data_ptr<float>(),
                       .rate_SN = in.rate_TN.const_data_ptr<float>(),
                       .states = states,
                       .scratch_SE = scratch_SE.data_ptr<float>(),
                       .out_SC = out_SC.data_ptr<float>()});
  return out_SC;
}

/// Several tokens of each sequence.
Tensor in_chunks(const model::DeltaLayer& layer, const kernels::DeltaTokens& in,
                 const StateRows& of) {
  const kernels::DeltaShape& shape = layer.shape;
  const int64_t sequences = static_cast<int64_t>(of.states.size()), before = layer.taps - 1,
                channels = shape.channels();
  const kernels::DeltaPlan plan =
      kernels::make_delta_plan(of.segments, layer.taps, /*have_start=*/true, at::kCPU);
  // The tokens before each run, as the state has them, behind the new ones.
  const Tensor rows_RE =
      at::empty({in.mixed_TE.size(0) + sequences * before, channels}, at::kFloat);
  rows_RE.narrow(0, 0, in.mixed_TE.size(0)).copy_(in.mixed_TE);
  const Tensor start_SNDV =
      at::empty({sequences, shape.value_heads, shape.key_dim, shape.value_dim}, at::kFloat);
  const auto bytes = [](int64_t numbers) {
    return static_cast<std::size_t>(numbers) * sizeof(float);
  };
  for (int64_t s = 0; s < sequences; ++s) {
    const float* state = of.states[static_cast<std::size_t>(s)];
    std::memcpy(rows_RE.data_ptr<float>() + (in.mixed_TE.size(0) + s * before) * channels, state,
                bytes(before * channels));
    std::memcpy(start_SNDV.data_ptr<float>() + s * shape.state(), state + before * channels,
                bytes(shape.state()));
  }
  const Tensor mixed_TE = kernels::causal_conv(rows_RE, layer.conv, plan);
  kernels::DeltaRun run =
      kernels::gated_delta_from(start_SNDV, {mixed_TE, in.decay_TN, in.rate_TN}, shape, plan);
  const Tensor state_SNDV = run.state_SNDV.contiguous();
  for (int64_t s = 0; s < sequences; ++s) {
    float* state = of.states[static_cast<std::size_t>(s)];
    const kernels::Segment& segment = of.segments[static_cast<std::size_t>(s)];
    // Of the last tokens, which may be older than the run is long.
    const int64_t fresh = std::min(segment.end - segment.begin, before);
    std::memmove(state, state + fresh * channels, bytes((before - fresh) * channels));
    std::memcpy(state + (before - fresh) * channels,
                in.mixed_TE.const_data_ptr<float>() + (segment.end - fresh) * channels,
                bytes(fresh * channels));
    std::memcpy(state + before * channels, state_SNDV.const_data_ptr<float>() + s * shape.state(),
                bytes(shape.state()));
  }
  return run.out_TC;
}

}  // namespace

Tensor PagedAttention::attend_delta(const model::DeltaLayer& layer,
                                    const kernels::DeltaTokens& in) {
  const kernels::TraceRange range("paged_delta");
  const std::vector<kernels::PagedSequence>& sequences = plans_.front().sequences;
  check(state_of_sequence_.size() == sequences.size(), "each sequence has a state");
  StateRows single, several;
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    const kernels::PagedSequence& sequence = sequences[i];
    StateRows& to = sequence.num_rows == 1 ? single : several;
    const auto begin = static_cast<int64_t>(to.rows.size());
    for (int64_t row = 0; row < sequence.num_rows; ++row)
      to.rows.push_back(sequence.first_row + row);
    to.states.push_back(states_.state(layer.index, state_of_sequence_[i]));
    to.segments.push_back({begin, begin + sequence.num_rows, -1});
  }
  Tensor out_TC = at::empty({in.mixed_TE.size(0), layer.shape.values()}, at::kFloat);
  const auto put = [&](const std::vector<int64_t>& rows, const Tensor& out) {
    out_TC.index_copy_(0, at::tensor(rows, at::kLong), out);
  };
  if (!single.rows.empty()) put(single.rows, stepped(layer, taken(in, single.rows), single.states));
  if (!several.rows.empty()) put(several.rows, in_chunks(layer, taken(in, several.rows), several));
  return out_TC;
}

}  // namespace slime::engine
