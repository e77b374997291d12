#include "kernels/cpu/delta_runs.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "kernels/cpu/delta_step.h"

namespace slime::kernels {

Tensor delta_runs(const DeltaTokens& in, const Tensor& conv_E1J, const DeltaShape& shape,
                  std::span<const DeltaRunRows> runs) {
  const int64_t taps = conv_E1J.size(2), tokens = in.mixed_TE.size(0);
  const Tensor tap_JE = conv_E1J.view({-1, taps}).t().to(at::kFloat).contiguous();
  Tensor out_TC = at::empty({tokens, shape.values()}, at::kFloat);
  int64_t longest = 0;
  for (const DeltaRunRows& run : runs) longest = std::max(longest, run.count);
  for (int64_t t = 0; t < longest; ++t) {
    std::vector<int64_t> rows;
    std::vector<float*> states;
    for (const DeltaRunRows& run : runs) {
      if (t >= run.count) continue;
      rows.push_back(run.begin + t);
      states.push_back(run.state);
    }
    const Tensor row_S = at::tensor(rows, at::kLong);
    const auto take = [&](const Tensor& x) {
      return x.index_select(0, row_S).to(at::kFloat).contiguous();
    };
    const Tensor mixed_SE = take(in.mixed_TE), decay_SN = take(in.decay_TN),
                 rate_SN = take(in.rate_TN), scratch_SE = at::empty_like(mixed_SE),
                 out_SC = at::empty({row_S.size(0), shape.values()}, at::kFloat);
    delta_step({.shape = shape,
                .taps = taps,
                .tap_JE = tap_JE.const_data_ptr<float>(),
                .mixed_SE = mixed_SE.const_data_ptr<float>(),
                .decay_SN = decay_SN.const_data_ptr<float>(),
                .rate_SN = rate_SN.const_data_ptr<float>(),
                .states = states,
                .scratch_SE = scratch_SE.data_ptr<float>(),
                .out_SC = out_SC.data_ptr<float>()});
    out_TC.index_copy_(0, row_S, out_SC);
  }
  return out_TC;
}

Tensor delta_segments_by_token(const DeltaTokens& in, const Tensor& conv_E1J,
                               const DeltaShape& shape, const std::vector<Segment>& segments) {
  const int64_t numbers = delta_state_numbers(shape, conv_E1J.size(2));
  std::vector<std::vector<float>> states(segments.size());
  std::vector<std::size_t> depth(segments.size(), 0);
  std::size_t deepest = 0;
  for (std::size_t i = 0; i < segments.size(); ++i) {
    if (segments[i].parent >= 0) depth[i] = depth[static_cast<std::size_t>(segments[i].parent)] + 1;
    deepest = std::max(deepest, depth[i]);
  }
  Tensor out_TC = at::empty({in.mixed_TE.size(0), shape.values()}, at::kFloat);
  for (std::size_t level = 0; level <= deepest; ++level) {
    std::vector<DeltaRunRows> runs;
    std::vector<int64_t> rows;
    for (std::size_t i = 0; i < segments.size(); ++i) {
      if (depth[i] != level) continue;
      states[i] = level == 0 ? std::vector<float>(static_cast<std::size_t>(numbers))
                             : states[static_cast<std::size_t>(segments[i].parent)];
      runs.push_back({segments[i].begin, segments[i].end - segments[i].begin, states[i].data()});
      for (int64_t row = segments[i].begin; row < segments[i].end; ++row) rows.push_back(row);
    }
    const Tensor row_R = at::tensor(rows, at::kLong);
    const Tensor of_level = delta_runs(in, conv_E1J, shape, runs);
    out_TC.index_copy_(0, row_R, of_level.index_select(0, row_R));
  }
  return out_TC;
}

}  // namespace slime::kernels
