#include "engine/gpu_row_extras.h"

#include <ATen/ATen.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "engine/sampler.h"
#include "engine/step_runner.h"

namespace slime::engine {
namespace {

Tensor locked_words(int64_t count) {
  const auto room = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(count)));
  return at::empty({room}, at::TensorOptions(at::kInt)).pin_memory();
}

uint32_t* words_of(const Tensor& block) {
  return reinterpret_cast<uint32_t*>(block.data_ptr<int32_t>());
}

std::vector<std::pair<float, TokenId>> read_top(const uint32_t* words, int64_t num_top) {
  std::vector<std::pair<float, TokenId>> top;
  top.reserve(num_top);
  for (int64_t i = 0; i < num_top; ++i) {
    const auto id = static_cast<TokenId>(words[2 * i + 1]);
    if (id < 0) break;
    top.emplace_back(std::bit_cast<float>(words[2 * i]), id);
  }
  return top;
}

bool wants_changes(const Request& request) {
  const SamplingParams& params = request.client.sampling;
  return has_penalties(params) || !params.logit_bias.empty() || is_too_short(request);
}

/// Appends the numbers of a list.
template <typename T>
void put(std::vector<std::byte>& bytes, const std::vector<T>& list) {
  const auto numbers = std::as_bytes(std::span(list));
  bytes.insert(bytes.end(), numbers.begin(), numbers.end());
}

}  // namespace

GpuRowExtras::GpuRowExtras(std::vector<TokenId> eos_ids, int64_t vocab_size, at::Device device)
    : eos_ids_(std::move(eos_ids)), vocab_size_(vocab_size), device_(device) {}

Tensor GpuRowExtras::make_changes(const Request& request) const {
  const SamplingParams& params = request.client.sampling;
  std::vector<kernels::TokenCount> counts;
  for (const auto& [id, count] : request.output_counts)
    counts.push_back({id, static_cast<int32_t>(count)});
  const auto num_counts = static_cast<int64_t>(counts.size());
  if (has_penalties(params)) {
    const int64_t to_draw = request.max_tokens - static_cast<int64_t>(request.tokens.size()) + 1;
    counts.resize(std::min(vocab_size_, num_counts + to_draw));
  }
  std::vector<kernels::TokenBias> biases;
  for (const auto& [id, bias] : params.logit_bias) biases.push_back({id, static_cast<float>(bias)});
  std::stable_sort(biases.begin(), biases.end(),
                   [](const auto& a, const auto& b) { return a.id < b.id; });
  const std::vector<TokenId> forbidden = forbidden_ids(params, eos_ids_, vocab_size_);

  kernels::LogitChanges changes;
  changes.frequency_penalty = params.frequency_penalty;
  changes.presence_penalty = params.presence_penalty;
  changes.repetition_penalty = static_cast<float>(params.repetition_penalty);
  changes.room = static_cast<int32_t>(counts.size());
  changes.num_counts = static_cast<int32_t>(num_counts);
  changes.num_biases = static_cast<int32_t>(biases.size());
  changes.num_forbidden = static_cast<int32_t>(forbidden.size());
  std::vector<std::byte> bytes;
  put(bytes, std::vector{changes});
  put(bytes, counts);
  put(bytes, biases);
  put(bytes, forbidden);

  const auto size = static_cast<int64_t>(bytes.size());
  const auto options = at::TensorOptions(at::kByte);
  const Tensor host = at::empty({size}, options).pin_memory();
  std::memcpy(host.data_ptr(), bytes.data(), bytes.size());
  Tensor on_device = at::empty({size}, options.device(device_));
  on_device.copy_(host, /*non_blocking=*/true);
  return on_device;
}

std::vector<kernels::RowExtras> GpuRowExtras::plan(std::span<const Chunk> chunks, int turn,
                                                   std::vector<RowReport>& reports) {
  std::vector<kernels::RowExtras> rows;
  std::vector<std::pair<std::size_t, int64_t>> words;  // rows with a report, and where it begins
  MaskedRows masked;
  bool has_any = false;
  int64_t num_words = 0;
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    if (!draws_token(chunks[i])) continue;
    Request& request = *chunks[i].request;
    kernels::RowExtras& extras = rows.emplace_back();
    if (!request.allowed_W.empty()) masked.emplace_back(rows.size() - 1, &request);
    if (wants_changes(request)) {
      if (!request.logit_changes.defined()) request.logit_changes = make_changes(request);
      extras.changes = static_cast<kernels::LogitChanges*>(request.logit_changes.data_ptr());
      extras.forbids = is_too_short(request) ? 1 : 0;
      has_any = true;
    }
    if (request.client.top_logprobs_num == 0 && !request.client.return_top_p_token_ids) continue;
    const kernels::SampleOptions options = sample_options(request);
    const bool keeps_ids = options.keeps_ids && kernels::is_truncated(options, vocab_size_);
    if (options.num_top == 0 && !keeps_ids) continue;
    extras.num_top = static_cast<int32_t>(std::min(options.num_top, vocab_size_));
    extras.keeps_ids = keeps_ids ? 1 : 0;
    words.emplace_back(rows.size() - 1, num_words);
    reports.push_back({static_cast<int64_t>(i), num_words, options});
    num_words += kernels::report_words(vocab_size_, options.num_top, keeps_ids);
    has_any = true;
  }
  if (!masked.empty()) send_masks(masked, turn, rows);
  if (!has_any && masked.empty()) return {};
  Tensor& block = reports_[turn];
  if (num_words > 0 && (!block.defined() || block.numel() < num_words))
    block = locked_words(num_words);
  for (const auto& [row, word] : words) rows[row].report = words_of(block) + word;
  return rows;
}

void GpuRowExtras::send_masks(const MaskedRows& masked, int turn,
                              std::vector<kernels::RowExtras>& extras) {
  const int64_t words = mask_words(vocab_size_), all = static_cast<int64_t>(masked.size()) * words;
  Masks& masks = masks_[turn];
  if (!masks.on_host.defined() || masks.on_host.numel() < all) {
    masks.on_host = locked_words(all);
    masks.on_device = at::empty_like(masks.on_host, masks.on_host.options().device(device_));
  }
  uint32_t* to = words_of(masks.on_host);
  const uint32_t* on_device = words_of(masks.on_device);
  for (const auto& [row, request] : masked) {
    std::ranges::copy(request->allowed_W, to);
    extras[row].allowed = on_device;
    to += words;
    on_device += words;
  }
  masks.on_device.narrow(0, 0, all).copy_(masks.on_host.narrow(0, 0, all), /*non_blocking=*/true);
}

void GpuRowExtras::read(const RowReport& report, int turn, int32_t num_kept,
                        kernels::SampledToken& token) const {
  const uint32_t* words = words_of(reports_[turn]) + report.word;
  if (num_kept == kernels::kHandedOver) {
    const auto* logits = reinterpret_cast<const float*>(words);
    token = kernels::report_row({logits, static_cast<std::size_t>(vocab_size_)}, token.id,
                                report.options);
    return;
  }
  const int64_t num_top = std::min(report.options.num_top, vocab_size_);
  token.top = read_top(words, num_top);
  const uint32_t* kept = words + 2 * num_top;
  token.kept_ids.assign(kept, kept + num_kept);
}

std::vector<std::vector<std::pair<float, TokenId>>> best_tokens(const kernels::EngineKernels& gpu,
                                                                const Tensor& logits_PV,
                                                                int64_t num_top) {
  const int64_t rows = logits_PV.size(0), vocab = logits_PV.size(1);
  num_top = std::min(num_top, vocab);
  const int64_t words = kernels::report_words(vocab, num_top, false);
  const Tensor block = locked_words(rows * words);
  constexpr auto kBytes = static_cast<int64_t>(sizeof(kernels::RowExtras));
  const Tensor host = at::empty({rows, kBytes}, at::TensorOptions(at::kByte));
  const std::span extras(static_cast<kernels::RowExtras*>(host.data_ptr()),
                         static_cast<std::size_t>(rows));
  for (int64_t row = 0; row < rows; ++row) {
    extras[row] = {};
    extras[row].report = words_of(block) + row * words;
    extras[row].num_top = static_cast<int32_t>(num_top);
  }
  const auto floats = logits_PV.options();
  kernels::SampleRows parameters;
  parameters.uniform_R = at::full({rows}, 0.5, floats.dtype(at::kDouble));
  parameters.temperature_R = parameters.top_p_R = at::ones({rows}, floats);
  parameters.min_p_R = at::zeros({rows}, floats);
  parameters.top_k_R = at::zeros({rows}, floats.dtype(at::kInt));
  parameters.extras_R = host.to(logits_PV.device());
  const auto integers = floats.dtype(at::kInt);
  const kernels::SampledRows sampled{at::empty({rows}, integers), at::empty({rows}, floats),
                                     at::empty({rows}, integers)};
  gpu.sample(logits_PV, parameters, sampled);
  const Tensor num_kept = sampled.num_kept_R.to(at::kCPU);  // sync: the reports are there behind it
  std::vector<std::vector<std::pair<float, TokenId>>> best;
  for (int64_t row = 0; row < rows; ++row) {
    const uint32_t* report = words_of(block) + row * words;
    if (num_kept.const_data_ptr<int32_t>()[row] == kernels::kHandedOver) {
      const auto* logits = reinterpret_cast<const float*>(report);
      best.push_back(
          kernels::score_row({logits, static_cast<std::size_t>(vocab)}, 0, 1.0, num_top).top);
    } else {
      best.push_back(read_top(report, num_top));
    }
  }
  return best;
}

}  // namespace slime::engine
