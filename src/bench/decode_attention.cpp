/// Attention of one layer in a decode step on the GPU: normed and rotated heads, the new keys and
/// values into their pages, and all earlier ones read, against the speed of memory.

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "bench/flags.h"
#include "bench/harness.h"
#include "core/json_lines.h"
#include "kernels/gpu/decode_launch.h"
#include "kernels/gpu/limits.h"

namespace slime::bench {
namespace {

struct DecodeAttentionOptions {
  std::vector<int64_t> batches{1, 8, 32, 128, 256};
  int64_t keys = 1024;  // of each sequence, its prompt included
  int64_t prompt = 0;   // keys that `samples` sequences share
  int64_t samples = 8;
  int64_t heads = 32, kv_heads = 8, head_dim = 128;
  std::string kv_cache_dtype = "auto";  // bfloat16; or fp8_e4m3
};

using kernels::kPageTokens;
constexpr double kColdBytes = 4e9;  // caches of all layers together: many times the L2 cache

/// Pages of sequences in groups that share their prompt's full pages.
std::vector<std::vector<int32_t>> page_lists(const DecodeAttentionOptions& options, int64_t batch,
                                             int32_t& num_pages) {
  const int64_t length = (options.keys + kPageTokens - 1) / kPageTokens;
  const int64_t shared = std::min(options.prompt / kPageTokens, length - 1);
  std::vector<std::vector<int32_t>> lists(batch, std::vector<int32_t>(length));
  for (int64_t s = 0; s < batch; ++s) {
    const int64_t leader = s / options.samples * options.samples;
    for (int64_t p = 0; p < length; ++p)
      lists[s][p] = p < shared && s != leader ? lists[leader][p] : num_pages++;
  }
  return lists;
}

Tensor numbers(const std::vector<int32_t>& list) {
  return at::tensor(list, at::kInt).to(at::kCUDA);
}

/// How the step is planned. Where tiles do what is decode's elsewhere, prompts are read by each.
enum class Variant { kPlain, kSharesPrompts, kWholeSequences };

bool has_decode(const kernels::Gpu& gpu, const kernels::RotaryShape& heads) {
  return gpu.has_decode_attention(heads, at::kBFloat16);
}

void measure_batch(const DecodeAttentionOptions& options, int64_t batch, Variant variant,
                   double copy_bytes_per_second) {
  kernels::Gpu& gpu = kernels::open_gpu();
  const kernels::RotaryShape heads{options.heads, options.kv_heads, options.head_dim, 1e-6};
  const bool is_fp8 = options.kv_cache_dtype == "fp8_e4m3";
  const int64_t number_bytes = is_fp8 ? 1 : 2;
  int32_t num_pages = 0;
  const auto lists = page_lists(options, batch, num_pages);
  kernels::PagedBatch paged;
  std::vector<kernels::DecodeSequence> sequences;
  std::vector<int32_t> pages, starts{0}, slots;
  std::vector<int64_t> positions(batch, options.keys - 1);
  const auto last = static_cast<int32_t>((options.keys - 1) % kPageTokens + 1);
  for (int64_t s = 0; s < batch; ++s) {
    sequences.push_back({s, s, options.keys, lists[s], static_cast<int64_t>(pages.size())});
    pages.insert(pages.end(), lists[s].begin(), lists[s].end());
    starts.push_back(static_cast<int32_t>(pages.size()));
    slots.push_back(lists[s].back() * static_cast<int32_t>(kPageTokens) + last - 1);
  }
  std::vector<int32_t> rows(batch + 1);
  std::iota(rows.begin(), rows.end(), 0);
  const int64_t group = options.heads / options.kv_heads;
  int64_t pages_read = 0;
  if (has_decode(gpu, heads)) {
    const kernels::DecodePlan plan =
        kernels::plan_decode(sequences, batch,
                             {group, options.kv_heads,
                              gpu.num_processors() * kernels::decode_blocks_per_processor(
                                                         static_cast<int>(options.head_dim),
                                                         static_cast<int>(number_bytes)),
                              variant == Variant::kSharesPrompts});
    for (const kernels::DecodeSegment& segment : plan.segments) pages_read += segment.num_pages;
    paged.decode = kernels::to_launch(plan, at::kCUDA);
  } else {
    const kernels::KeySplit split{options.kv_heads, gpu.num_processors(),
                                  kernels::most_tile_rows(options.head_dim)};
    const std::vector<kernels::PagedSpan> spans(batch, {1, options.keys});
    paged.tiles = {kernels::to_launch(
        kernels::plan_single_rows(
            spans, batch, group, variant == Variant::kWholeSequences ? kernels::KeySplit{} : split),
        batch, at::kCUDA)};
    pages_read = static_cast<int64_t>(pages.size());
  }
  paged.slot_T = numbers(slots);
  paged.query_starts = numbers(rows);
  rows.pop_back();
  paged.row_sequence_T = numbers(rows);
  paged.page_starts = numbers(starts);
  paged.pages = numbers(pages);
  paged.last_page_tokens = numbers(std::vector<int32_t>(batch, last));

  const double page_bytes =
      static_cast<double>(2 * options.kv_heads * kPageTokens * options.head_dim * number_bytes);
  const auto layers =
      std::clamp<int64_t>(static_cast<int64_t>(kColdBytes / page_bytes / num_pages), 4, 256);
  const auto on_gpu = at::TensorOptions(at::kBFloat16).device(at::kCUDA);
  const auto cache = [&] {
    const Tensor exact =
        at::empty({layers, num_pages, options.kv_heads, kPageTokens, options.head_dim}, on_gpu);
    exact.uniform_(-1, 1);
    return is_fp8 ? exact.to(at::kFloat8_e4m3fn) : exact;
  };
  const Tensor keys = cache(), values = cache();
  kernels::PagedCall call;
  call.batch = &paged;
  call.rotary_row_T = paged.index_T = at::tensor(positions, at::kLong).to(at::kCUDA);
  call.cos_PR = at::ones({options.keys, options.head_dim / 2}, on_gpu.dtype(at::kFloat));
  call.sin_PR = at::zeros_like(call.cos_PR);
  call.heads = heads;
  call.attention = {1 / std::sqrt(static_cast<double>(options.head_dim)), 0};
  call.qkv_TE =
      at::empty({batch, (options.heads + 2 * options.kv_heads) * options.head_dim}, on_gpu);
  call.qkv_TE.uniform_(-1, 1);
  const double seconds = recorded_seconds(static_cast<int>(layers), [&](int layer) {
    call.keys = keys[layer];
    call.values = values[layer];
    gpu.paged_attention(call);
  });
  const double bytes = page_bytes * static_cast<double>(pages_read);
  write_json_line({{"measurement", "decode-attention"},
                   {"batch", batch},
                   {"keys", options.keys},
                   {"prompt", options.prompt},
                   {"shares_prompts", variant == Variant::kSharesPrompts},
                   {"splits_keys", variant != Variant::kWholeSequences},
                   {"kv_cache", is_fp8 ? "fp8_e4m3" : "bfloat16"},
                   {"microseconds", seconds * 1e6},
                   {"tb_per_second", bytes / seconds * 1e-12},
                   {"fraction_of_copy", bytes / seconds / copy_bytes_per_second}});
}

void measure_decode_attention(const DecodeAttentionOptions& options) {
  const at::NoGradGuard no_grad;
  const kernels::GpuLimits limits = kernels::measure_gpu_limits();
  const bool has_own_kernel =
      has_decode(kernels::open_gpu(), {options.heads, options.kv_heads, options.head_dim, 1e-6});
  for (const int64_t batch : options.batches) {
    const auto measure = [&](Variant variant) {
      measure_batch(options, batch, variant, limits.copy_bytes_per_second);
    };
    measure(Variant::kPlain);
    if (options.prompt > 0 && has_own_kernel) measure(Variant::kSharesPrompts);
    if (!has_own_kernel) measure(Variant::kWholeSequences);
    kernels::opened_gpu().release_unused_memory();
  }
}

}  // namespace

int decode_attention(const std::string& name, Arguments arguments) {
  DecodeAttentionOptions options;
  Flags flags("Attention of one layer in a decode step on the GPU.", name);
  flags.list("--batch", options.batches, "Sequences of a step");
  flags.add("--keys", options.keys, "Keys of each sequence");
  flags.add("--prompt", options.prompt, "Keys that --samples sequences share");
  flags.count("--samples", options.samples, "Sequences of one prompt");
  flags.add("--heads", options.heads, "Query heads");
  flags.add("--kv-heads", options.kv_heads, "Key-value heads");
  flags.add("--head-dim", options.head_dim, "Size of a head")->check(CLI::IsMember({64, 128, 256}));
  flags.add("--kv-cache-dtype", options.kv_cache_dtype, "auto (bfloat16) or fp8_e4m3")
      ->check(CLI::IsMember({"auto", "fp8_e4m3"}));
  if (const auto exit_code = flags.take(arguments)) return *exit_code;
  measure_decode_attention(options);
  return 0;
}

}  // namespace slime::bench
