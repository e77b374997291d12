#include "engine/gpu_expert_choices.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <bit>

#include "core/error.h"
#include "kernels/page.h"

namespace slime::engine {

GpuExpertChoices::GpuExpertChoices(const model::ModelConfig& model, int64_t num_pages,
                                   at::Device device)
    : layers_(model.num_layers),
      per_token_(model.experts.per_token),
      device_(device),
      pages_(num_pages, kernels::kPageTokens, model.routing_width()) {}

Tensor GpuExpertChoices::room(int64_t rows) const {
  return at::zeros({rows, layers_, per_token_}, at::TensorOptions(device_).dtype(at::kShort));
}

void GpuExpertChoices::send(std::initializer_list<Made> parts) {
  Sent& step = sent_.emplace_back();
  step.copies = std::exchange(copies_, {});
  step.turn = turn_ = 1 - turn_;
  std::vector<int64_t> ends;  // rows up to the end of a part
  for (const Made& part : parts) {
    for (const Chunk& chunk : part.chunks) {
      const Request& request = *chunk.request;
      for (int64_t i = request.num_computed; i < request.num_computed + chunk.num_tokens; ++i)
        step.places.emplace_back(request.pages[static_cast<std::size_t>(i / kernels::kPageTokens)],
                                 i % kernels::kPageTokens);
    }
    ends.push_back(static_cast<int64_t>(step.places.size()));
  }
  const int64_t numbers = static_cast<int64_t>(step.places.size()) * pages_.width();
  Tensor& host = on_host_[step.turn];
  if (!host.defined() || host.numel() < numbers) {
    const auto room = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(numbers)));
    host = at::empty({room}, at::TensorOptions(at::kShort)).pin_memory();
  }
  int64_t begin = 0;
  auto end = ends.begin();
  for (const Made& part : parts) {
    const int64_t rows = *end++ - begin;
    if (rows > 0)
      host.narrow(0, begin * pages_.width(), rows * pages_.width())
          .copy_(part.made_TYK.narrow(0, 0, rows).flatten(), /*non_blocking=*/true);
    begin += rows;
  }
}

void GpuExpertChoices::collect() {
  check(!sent_.empty(), "choices of a step are sent before they are collected");
  const Sent step = std::move(sent_.front());
  sent_.pop_front();
  for (const auto& [from, to] : step.copies) pages_.copy_page(from, to);
  const int16_t* row = on_host_[step.turn].const_data_ptr<int16_t>();
  for (const auto& [page, slot] : step.places) {
    std::copy_n(row, pages_.width(), pages_.at(page, slot).begin());
    row += pages_.width();
  }
}

void GpuExpertChoices::reset() {
  sent_.clear();
  copies_.clear();
}

}  // namespace slime::engine
