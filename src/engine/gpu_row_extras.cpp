#include "engine/gpu_row_extras.h"

#include <ATen/ATen.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <unordered_map>
#include <utility>

#include "engine/drawn_rows.h"
#include "engine/sampler.h"

namespace slime::engine {
namespace {

uint32_t* words_of(const Tensor& block) {
  return reinterpret_cast<uint32_t*>(block.data_ptr<int32_t>());
}

constexpr int64_t kMassWords = sizeof(kernels::ChunkMasses) / sizeof(uint32_t);

int64_t num_chunks(int64_t vocab_size) {
  return (vocab_size + kernels::kMassChunk - 1) / kernels::kMassChunk;
}

/// Of the token at `position`.
bool wants_changes(const Request& request, int64_t position) {
  const SamplingParams& params = request.client.sampling;
  return has_penalties(params) || !params.logit_bias.empty() || is_too_short(request, position);
}

/// Appends the numbers of a list.
template <typename T>
void put(std::vector<std::byte>& bytes, const std::vector<T>& list) {
  const auto numbers = std::as_bytes(std::span(list));
  bytes.insert(bytes.end(), numbers.begin(), numbers.end());
}

}  // namespace

void grow_locked(Tensor& block, int64_t count, at::ScalarType type) {
  if (block.defined() && block.numel() >= count) return;
  const auto room = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(count)));
  block = at::empty({room}, at::TensorOptions(type)).pin_memory();
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

void pick_asked(kernels::SampledToken& token, std::span<const TokenId> asked_ids, int64_t num_top) {
  if (asked_ids.empty()) return;
  std::unordered_map<TokenId, float> log_probs;
  for (const auto& [log_prob, id] : token.top) log_probs.emplace(id, log_prob);
  for (const TokenId id : asked_ids) {
    const auto found = log_probs.find(id);  // impossible ones are not listed
    token.asked.emplace_back(
        found == log_probs.end() ? -std::numeric_limits<float>::infinity() : found->second, id);
  }
  if (std::ssize(token.top) > num_top) token.top.resize(static_cast<std::size_t>(num_top));
}

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
  int64_t num_words = 0, num_masses = 0;
  std::vector<std::pair<std::size_t, int64_t>>
      masses;  // rows that report them, and where they begin
  for (const DrawnRow& drawn : drawn_rows(chunks)) {
    Request& request = *chunks[drawn.chunk].request;
    kernels::RowExtras& extras = rows.emplace_back();
    if (!request.allowed_W.empty()) masked.emplace_back(rows.size() - 1, &request);
    if (wants_changes(request, drawn.position)) {
      if (!request.logit_changes.defined()) request.logit_changes = make_changes(request);
      extras.changes = static_cast<kernels::LogitChanges*>(request.logit_changes.data_ptr());
      extras.forbids = is_too_short(request, drawn.position) ? 1 : 0;
      has_any = true;
    }
    const bool asks_ids = !request.client.token_ids_logprob.empty();
    const bool tells_masses = request.client.return_free_logprobs && !request.allowed_W.empty();
    if (request.client.top_logprobs_num == 0 && !request.client.return_top_p_token_ids &&
        !asks_ids && !tells_masses)
      continue;
    const kernels::SampleOptions options = sample_options(request, drawn.position);
    const bool keeps_ids = options.keeps_ids && kernels::is_truncated(options, vocab_size_);
    const bool lists = options.num_top > 0 || keeps_ids || asks_ids;
    if (!lists && !tells_masses) continue;
    RowReport& report = reports.emplace_back(RowReport{
        .chunk = static_cast<int64_t>(drawn.chunk), .draw = drawn.draw, .options = options});
    if (tells_masses) {
      report.mass = num_masses;
      masses.emplace_back(rows.size() - 1, num_masses);
      num_masses += num_chunks(vocab_size_);
    }
    if (!lists) continue;
    report.num_listed = asks_ids ? vocab_size_ : std::min(options.num_top, vocab_size_);
    extras.num_top = static_cast<int32_t>(report.num_listed);
    extras.keeps_ids = keeps_ids ? 1 : 0;
    const bool keeps_log_probs = keeps_ids && options.keeps_log_probs;
    extras.keeps_log_probs = keeps_log_probs ? 1 : 0;
    report.word = num_words;
    words.emplace_back(rows.size() - 1, num_words);
    num_words += kernels::report_words(vocab_size_, report.num_listed, keeps_ids, keeps_log_probs);
    has_any = true;
  }
  if (!masked.empty()) send_masks(masked, turn, rows);
  if (!has_any && masked.empty()) return {};
  Tensor& block = reports_[turn];
  if (num_words > 0) grow_locked(block, num_words, at::kInt);
  for (const auto& [row, word] : words) rows[row].report = words_of(block) + word;
  Tensor& of_masses = masses_[turn];
  const int64_t mass_words = num_masses * kMassWords;
  if (mass_words > 0) grow_locked(of_masses, mass_words, at::kInt);
  for (const auto& [row, mass] : masses)
    rows[row].masses = reinterpret_cast<kernels::ChunkMasses*>(words_of(of_masses)) + mass;
  return rows;
}

void GpuRowExtras::send_masks(const MaskedRows& masked, int turn,
                              std::vector<kernels::RowExtras>& extras) {
  const int64_t words = mask_words(vocab_size_), all = static_cast<int64_t>(masked.size()) * words;
  Masks& masks = masks_[turn];
  if (!masks.on_host.defined() || masks.on_host.numel() < all) {
    grow_locked(masks.on_host, all, at::kInt);
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

/// By the share of the distribution that the constraint leaves.
float GpuRowExtras::free_log_prob(const RowReport& report, int turn, float log_prob) const {
  const std::span masses(
      reinterpret_cast<const kernels::ChunkMasses*>(words_of(masses_[turn])) + report.mass,
      static_cast<std::size_t>(num_chunks(vocab_size_)));
  const double inverse = 1.0F / static_cast<float>(report.options.temperature);
  using Number = float kernels::ChunkMasses::*;
  const auto log_total = [&](Number largest_of, Number sum_of) {
    double largest = -std::numeric_limits<double>::infinity(), total = 0;
    for (const auto& chunk : masses) largest = std::max<double>(largest, chunk.*largest_of);
    for (const auto& chunk : masses)
      if (chunk.*sum_of > 0)
        total += chunk.*sum_of * std::exp((chunk.*largest_of - largest) * inverse);
    return largest * inverse + std::log(total);
  };
  using kernels::ChunkMasses;
  return static_cast<float>(log_prob +
                            log_total(&ChunkMasses::allowed_largest, &ChunkMasses::allowed_sum) -
                            log_total(&ChunkMasses::largest, &ChunkMasses::sum));
}

void GpuRowExtras::read(const RowReport& report, int turn, int32_t num_kept,
                        kernels::SampledToken& token) const {
  if (report.mass >= 0) token.free_log_prob = free_log_prob(report, turn, token.log_prob);
  if (report.word < 0) return;
  const uint32_t* words = words_of(reports_[turn]) + report.word;
  if (num_kept == kernels::kHandedOver) {
    const auto* logits = reinterpret_cast<const float*>(words);
    const float free_log_prob = token.free_log_prob;
    token = kernels::report_row({logits, static_cast<std::size_t>(vocab_size_)}, token.id,
                                report.options);
    token.free_log_prob = free_log_prob;
    return;
  }
  token.top = read_top(words, report.num_listed);
  const uint32_t* kept = words + 2 * report.num_listed;
  token.kept_ids.assign(kept, kept + num_kept);
  if (report.options.keeps_log_probs && num_kept > 0) {
    const uint32_t* log_probs = kept + kernels::kMostReported;
    for (int32_t i = 0; i < num_kept; ++i)
      token.kept_log_probs.push_back(std::bit_cast<float>(log_probs[i]));
  }
  pick_asked(token, report.options.asked_ids, report.options.num_top);
}

Tensor report_best_tokens(const kernels::EngineKernels& gpu, const Tensor& logits_RV,
                          const Tensor& extras_R) {
  const int64_t rows = logits_RV.size(0);
  const auto floats = logits_RV.options();
  kernels::SampleRows parameters;
  parameters.uniform_R = at::full({rows}, 0.5, floats.dtype(at::kDouble));
  parameters.temperature_R = parameters.top_p_R = at::ones({rows}, floats);
  parameters.min_p_R = at::zeros({rows}, floats);
  parameters.top_k_R = at::zeros({rows}, floats.dtype(at::kInt));
  parameters.extras_R = extras_R;
  const auto integers = floats.dtype(at::kInt);
  const kernels::SampledRows sampled{at::empty({rows}, integers), at::empty({rows}, floats),
                                     at::empty({rows}, integers)};
  gpu.sample(logits_RV, parameters, sampled);
  return sampled.num_kept_R;
}

std::vector<std::vector<std::pair<float, TokenId>>> best_tokens(const kernels::EngineKernels& gpu,
                                                                const Tensor& logits_PV,
                                                                int64_t num_top) {
  const int64_t rows = logits_PV.size(0), vocab = logits_PV.size(1);
  num_top = std::min(num_top, vocab);
  const int64_t words = kernels::report_words(vocab, num_top, false);
  Tensor block;
  grow_locked(block, rows * words, at::kInt);
  constexpr auto kBytes = static_cast<int64_t>(sizeof(kernels::RowExtras));
  const Tensor host = at::empty({rows, kBytes}, at::TensorOptions(at::kByte));
  const std::span extras(static_cast<kernels::RowExtras*>(host.data_ptr()),
                         static_cast<std::size_t>(rows));
  for (int64_t row = 0; row < rows; ++row) {
    extras[row] = {};
    extras[row].report = words_of(block) + row * words;
    extras[row].num_top = static_cast<int32_t>(num_top);
  }
  const Tensor num_kept = report_best_tokens(gpu, logits_PV, host.to(logits_PV.device()))
                              .to(at::kCPU);  // sync: the reports are there behind it
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
