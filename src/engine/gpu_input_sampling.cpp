// Parameters of the rows that a GPU step draws from, and their adapters.

#include <algorithm>
#include <limits>

#include "engine/adapter_tiles.h"
#include "engine/drawn_rows.h"
#include "engine/gpu_input_block.h"
#include "engine/sampler.h"
#include "engine/sampling_params.h"

namespace slime::engine {

void GpuInputBlock::fill_sampling(std::span<const Chunk> chunks,
                                  std::span<const kernels::RowExtras> extras, int64_t rows,
                                  bool is_decode, GpuStepInputs& in) {
  const std::vector<DrawnRow> sampled = drawn_rows(chunks);
  const auto count = static_cast<int64_t>(sampled.size());
  const int64_t launched = is_decode ? rows : count;
  if (!is_decode && count < rows) {
    std::vector<int64_t> sampled_rows;
    sampled_rows.reserve(sampled.size());
    for (const DrawnRow& drawn : sampled) sampled_rows.push_back(drawn.row);
    block_.add(std::span<const int64_t>(sampled_rows));
    in.sampled_rows_R = block_.last_on_device(at::kLong, count);
  }
  const auto uniforms = block_.add<double>(launched);
  in.sampling.uniform_R = block_.last_on_device(at::kDouble, launched);
  const auto temperatures = block_.add<float>(launched);
  in.sampling.temperature_R = block_.last_on_device(at::kFloat, launched);
  const auto top_ps = block_.add<float>(launched);
  in.sampling.top_p_R = block_.last_on_device(at::kFloat, launched);
  const auto min_ps = block_.add<float>(launched);
  in.sampling.min_p_R = block_.last_on_device(at::kFloat, launched);
  const auto top_ks = block_.add<int32_t>(launched);
  in.sampling.top_k_R = block_.last_on_device(at::kInt, launched);
  constexpr auto kExtrasBytes = static_cast<int64_t>(sizeof(kernels::RowExtras));
  const auto wish_room = block_.add<kernels::RowExtras>(launched);
  in.sampling.extras_R = block_.last_on_device(at::kByte, launched * kExtrasBytes);
  std::ranges::fill(wish_room, kernels::RowExtras{});
  std::ranges::copy(extras, wish_room.begin());
  for (int64_t i = 0; i < launched; ++i) {
    uniforms[i] = 0.5;
    temperatures[i] = top_ps[i] = 1;
    min_ps[i] = 0;
    top_ks[i] = 0;
    if (i >= count) continue;
    const Request& request = *chunks[sampled[i].chunk].request;
    const SamplingParams& params = request.client.sampling;
    const bool greedy = is_greedy(params);
    if (!greedy) uniforms[i] = uniform_of(request, sampled[i].position);
    temperatures[i] = static_cast<float>(logprob_temperature(params));
    top_ps[i] = static_cast<float>(params.top_p);
    min_ps[i] = static_cast<float>(params.min_p);
    const int64_t top_k = std::min<int64_t>(params.top_k, std::numeric_limits<int32_t>::max());
    top_ks[i] = greedy ? 0 : static_cast<int32_t>(top_k);
  }
}

void GpuInputBlock::fill_adapters(std::span<const Chunk> chunks, int64_t rows, GpuStepInputs& in) {
  in.adapters = add_adapter_tiles(block_, adapter_slots(chunks, rows), num_adapters_);
  in.sampled_adapters = in.sampled_rows_R.defined()
                            ? add_adapter_tiles(block_, drawing_slots(chunks), num_adapters_)
                            : in.adapters;
}

}  // namespace slime::engine
