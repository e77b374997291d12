#include "engine/gpu_runner.h"

#include <ATen/ATen.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <array>
#include <limits>

#include "core/error.h"
#include "engine/cache_shape.h"
#include "engine/prompt_scores.h"
#include "engine/sampler.h"
#include "engine/sampling_params.h"
#include "kernels/gpu/paged_units.h"
#include "kernels/gpu/recorded_rows.h"
#include "kernels/linear.h"

namespace slime::engine {
namespace {

using kernels::kPageTokens;

c10::Stream new_stream(at::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device, true);
}

int64_t pages_of(int64_t num_tokens) { return (num_tokens + kPageTokens - 1) / kPageTokens; }

int64_t keys_of(const Chunk& chunk) { return chunk.request->num_computed + chunk.num_tokens; }

/// An upper bound of what StepBlock holds: per row, per sequence, per tile, per page, and the lists
/// of decode.
int64_t block_bytes(const StepRunnerConfig& config, const kernels::DecodeOptions& decode) {
  const int64_t sequences = std::max(config.max_running_requests, kernels::kRecordedRows.back());
  const int64_t rows = config.max_prefill_tokens + sequences;
  const kernels::DecodeLimits lists = kernels::decode_limits(sequences, decode);
  return 64 * rows + 128 * sequences + 16 * (rows * 2 + 4096) + 4 * lists.units +
         static_cast<int64_t>(sizeof(kernels::DecodeSegment)) * lists.segments +
         static_cast<int64_t>(sizeof(kernels::DecodeMember)) * lists.members +
         4 * config.max_running_requests * (pages_of(config.context_length) + 1) + (1 << 16);
}

kernels::DecodeOptions decode_options(const kernels::Gpu& gpu, const model::CacheSpec& cache,
                                      const StepRunnerConfig& step) {
  const int blocks = kernels::decode_blocks_per_processor(
      static_cast<int>(cache.key_size), static_cast<int>(c10::elementSize(step.kv_dtype)));
  return {cache.queries_per_head, cache.heads, gpu.num_processors() * blocks,
          step.shares_prompt_reads};
}

/// Keys and values of all pages and the spare one.
int64_t cache_bytes(const model::Network& network, const StepRunnerConfig& step) {
  return GpuRunner::page_bytes(network.blocks(), step.kv_dtype) * (step.num_pages + 1);
}

/// The first half holds the keys, the second the values.
Tensor cache_half(const model::Network& network, const StepRunnerConfig& step,
                  const kernels::GpuMemory& memory, int half) {
  const model::CacheSpec cache = common_cache(network.blocks());
  return memory.view(half * cache_bytes(network, step) / 2,
                     {static_cast<int64_t>(network.blocks().size()), step.num_pages + 1,
                      cache.heads, kPageTokens, cache.key_size},
                     step.kv_dtype);
}

template <typename T>
std::span<const T> view(const std::vector<T>& numbers) {
  return numbers;
}

}  // namespace

GpuAttention::GpuAttention(const kernels::Gpu& gpu, const Tensor& keys, const Tensor& values)
    : gpu_(gpu), chains_(kernels::block_chains_for(keys)) {
  for (int64_t layer = 0; layer < keys.size(0); ++layer) {
    keys_.push_back(keys.select(0, layer));
    values_.push_back(values.select(0, layer));
  }
}

Tensor GpuAttention::attend(const model::AttentionLayer& layer, const Tensor& qkv_TE,
                            const Tensor& positions_T) {
  kernels::PagedCall call;
  call.batch = &batch_;
  call.qkv_TE = qkv_TE;
  call.positions_T = positions_T;
  call.q_norm_D = layer.q_norm.value;
  call.k_norm_D = layer.k_norm.value;
  call.cos_PR = layer.cos_PR;
  call.sin_PR = layer.sin_PR;
  call.heads = {layer.num_heads, layer.num_kv_heads, layer.head_dim, layer.norm_eps};
  call.attention = {layer.scale, layer.window};
  call.keys = keys_[layer.index];
  call.values = values_[layer.index];
  return gpu_.paged_attention(call);
}

int64_t GpuRunner::page_bytes(std::span<const model::BlockNeeds> blocks, at::ScalarType dtype) {
  const model::CacheSpec cache = common_cache(blocks);
  if (cache.value_size != cache.key_size)
    throw ConfigError("on a GPU the engine holds keys and values of one size");
  return static_cast<int64_t>(blocks.size()) * kPageTokens * cache.numbers_per_token() *
         static_cast<int64_t>(c10::elementSize(dtype));
}

GpuRunner::GpuRunner(model::Network& network, const StepRunnerConfig& config)
    : gpu_(kernels::opened_gpu()),
      network_(network),
      config_(config),
      decode_(decode_options(gpu_, common_cache(network.blocks()), config)),
      has_decode_(gpu_.has_decode_attention(attention_heads(network),
                                            network.weights().flat().scalar_type())),
      stream_(new_stream(network.weights().flat().device())),
      memory_(gpu_.reserve_memory(cache_bytes(network, config))),
      keys_(cache_half(network, config, *memory_, 0)),
      values_(cache_half(network, config, *memory_, 1)),
      attention_(gpu_, keys_, values_),
      block_(block_bytes(config, decode_), keys_.device()),
      ready_{c10::Event(keys_.device().type()), c10::Event(keys_.device().type())} {
  const int64_t rows = std::max(config.max_running_requests, kernels::kRecordedRows.back());
  results_ = at::zeros({2, rows}, keys_.options().dtype(at::kInt));
  for (Tensor& host : host_results_)
    host = at::zeros({2, rows}, at::TensorOptions(at::kInt)).pin_memory();
  // What the constructor put on the device must be there before the runner's stream reads it.
  c10::impl::VirtualGuardImpl(keys_.device().type()).synchronizeDevice(keys_.device().index());
}

GpuRunner::~GpuRunner() { stream_.synchronize(); }

void GpuRunner::reset() {
  launched_.clear();
  recorded_.clear();
}

void GpuRunner::release_memory() {
  stream_.synchronize();  // sync: nothing may read or write pages that are gone
  memory_->unmap();
}

void GpuRunner::copy_page(PageId from, PageId to) {
  const c10::StreamGuard guard(stream_);
  keys_.select(1, to).copy_(keys_.select(1, from));
  values_.select(1, to).copy_(values_.select(1, from));
}

bool GpuRunner::is_recordable(std::span<const Chunk> chunks) const {
  return static_cast<int64_t>(chunks.size()) <= kernels::kRecordedRows.back() &&
         std::all_of(chunks.begin(), chunks.end(), [](const Chunk& chunk) {
           return chunk.num_tokens == 1 && draws_token(chunk) &&
                  !chunk.request->wants_input_scores() &&
                  !needs_host(chunk.request->client, chunk.request->num_new_tokens());
         });
}

int64_t GpuRunner::padded_rows(int64_t rows) const {
  return *std::lower_bound(kernels::kRecordedRows.begin(), kernels::kRecordedRows.end(), rows);
}

/// Which units of attention there are: those of prompts, and those of sequences with one row.
void GpuRunner::fill_units(std::span<const Chunk> chunks, int64_t rows, bool is_decode,
                           Inputs& in) {
  const auto device = [&](at::ScalarType type, int64_t count) {
    return block_.last_on_device(type, count);
  };
  std::vector<kernels::PagedSpan> spans;
  std::vector<kernels::DecodeSequence> sequences;
  int64_t row = 0, page = 0;
  spans.reserve(chunks.size());
  for (const Chunk& chunk : chunks) {
    const int64_t num_pages = pages_of(keys_of(chunk));
    spans.push_back({chunk.num_tokens, keys_of(chunk)});
    if (chunk.num_tokens == 1) {
      const auto sequence = static_cast<int64_t>(spans.size()) - 1;
      sequences.push_back(
          {sequence, row, keys_of(chunk), view(chunk.request->pages).first(num_pages), page});
    }
    row += chunk.num_tokens;
    page += num_pages;
  }
  const auto add_tiles = [&](const kernels::UnitPlan& plan) {
    if (plan.num_units == 0) return;
    kernels::TileLaunch launch;
    launch.tile = plan.tile;
    launch.num_units = plan.num_units;
    block_.add(view(plan.sequence_U));
    launch.unit_sequence_U = device(at::kInt, plan.num_units);
    block_.add(view(plan.tile_U));
    launch.unit_tile_U = device(at::kInt, plan.num_units);
    std::ranges::fill(block_.add<int32_t>(plan.num_units), 0);
    launch.unit_chunk_U = device(at::kInt, plan.num_units);
    block_.add(view(plan.is_on_U));
    launch.unit_is_on_U = device(at::kByte, plan.num_units);
    block_.add<int32_t>(1)[0] = int32_t{1} << 30;
    launch.chunk_tokens = device(at::kInt, 1);
    block_.add<int32_t>(1)[0] = static_cast<int32_t>(row);
    launch.num_rows = device(at::kInt, 1);
    in.batch.tiles.push_back(std::move(launch));
  };
  add_tiles(kernels::plan_prompts(spans, decode_.group));
  if (!has_decode_) {
    add_tiles(kernels::plan_single_rows(spans, is_decode ? rows : 0, decode_.group));
    return;
  }
  if (sequences.empty()) return;
  const int64_t launched = is_decode ? rows : static_cast<int64_t>(chunks.size());
  const kernels::DecodePlan plan = kernels::plan_decode(sequences, launched, decode_);
  const auto add = [&](const auto& list, int64_t room) {
    const int64_t integers = sizeof(list[0]) / sizeof(int32_t);
    const auto place = block_.add<std::decay_t<decltype(list[0])>>(room);
    std::ranges::copy(list, place.begin());
    return device(at::kInt, room * integers);
  };
  kernels::DecodeLaunch& launch = in.batch.decode;
  launch.num_units = plan.room.units;
  launch.num_records = plan.room.records;
  launch.unit_starts = add(plan.unit_starts, plan.room.units + 1);
  launch.segments = add(plan.segments, plan.room.segments);
  launch.members = add(plan.members, plan.room.members);
  launch.record_starts = add(plan.record_starts, launched + 1);
}

void GpuRunner::fill_attention(std::span<const Chunk> chunks, int64_t rows, bool is_decode,
                               Inputs& in) {
  const auto device = [&](at::ScalarType type, int64_t count) {
    return block_.last_on_device(type, count);
  };
  const auto num_chunks = static_cast<int64_t>(chunks.size());
  // Each row of padding is a sequence of its own, with one key in the spare page.
  int64_t num_tokens = 0, num_pages = 0;
  for (const Chunk& chunk : chunks) {
    num_tokens += chunk.num_tokens;
    num_pages += pages_of(keys_of(chunk));
  }
  const int64_t padding = rows - num_tokens;
  const int64_t sequences = num_chunks + padding;
  const auto spare = static_cast<int32_t>(config_.num_pages);

  const auto ids = block_.add<int64_t>(rows);
  in.ids_T = device(at::kLong, rows);
  const auto positions = block_.add<int64_t>(rows);
  in.positions_T = device(at::kLong, rows);
  const auto slots = block_.add<int32_t>(rows);
  in.batch.slot_T = device(at::kInt, rows);
  const auto row_sequence = block_.add<int32_t>(rows);
  in.batch.row_sequence_T = device(at::kInt, rows);
  const auto query_starts = block_.add<int32_t>(sequences + 1);
  in.batch.query_starts = device(at::kInt, sequences + 1);
  const auto page_starts = block_.add<int32_t>(sequences + 1);
  in.batch.page_starts = device(at::kInt, sequences + 1);
  const auto last_page_tokens = block_.add<int32_t>(sequences);
  in.batch.last_page_tokens = device(at::kInt, sequences);

  fill_units(chunks, rows, is_decode, in);
  // Last, because their number changes from step to step.
  const auto pages = block_.add<int32_t>(num_pages + padding);
  in.batch.pages = device(at::kInt, num_pages + padding);

  int64_t row = 0, page = 0, sequence = 0;
  for (const Chunk& chunk : chunks) {
    const Request& request = *chunk.request;
    query_starts[sequence] = static_cast<int32_t>(row);
    page_starts[sequence] = static_cast<int32_t>(page);
    const int64_t num_keys = keys_of(chunk);
    last_page_tokens[sequence] = static_cast<int32_t>((num_keys - 1) % kPageTokens + 1);
    std::copy_n(request.pages.begin(), pages_of(num_keys), pages.begin() + page);
    page += pages_of(num_keys);
    for (int64_t i = 0; i < chunk.num_tokens; ++i, ++row) {
      const int64_t position = request.num_computed + i;
      const TokenId id = request.tokens[position];
      ids[row] = id == kPendingToken ? -request.drawn_row - 1 : id;
      positions[row] = position;
      slots[row] = static_cast<int32_t>(request.pages[position / kPageTokens] * kPageTokens +
                                        position % kPageTokens);
      row_sequence[row] = static_cast<int32_t>(sequence);
    }
    ++sequence;
  }
  for (; row < rows; ++row, ++page, ++sequence) {
    query_starts[sequence] = static_cast<int32_t>(row);
    page_starts[sequence] = static_cast<int32_t>(page);
    last_page_tokens[sequence] = 1;
    pages[page] = spare;
    ids[row] = positions[row] = 0;
    slots[row] = static_cast<int32_t>(spare * kPageTokens);
    row_sequence[row] = static_cast<int32_t>(sequence);
  }
  query_starts[sequence] = static_cast<int32_t>(row);
  page_starts[sequence] = static_cast<int32_t>(page);
}

void GpuRunner::fill_sampling(std::span<const Chunk> chunks, int64_t rows, bool is_decode,
                              Inputs& in) {
  std::vector<const Request*> drawn;
  std::vector<int64_t> drawn_rows;
  int64_t row = 0;
  for (const Chunk& chunk : chunks) {
    row += chunk.num_tokens;
    if (!draws_token(chunk)) continue;
    drawn.push_back(chunk.request);
    drawn_rows.push_back(row - 1);
  }
  const auto count = static_cast<int64_t>(drawn.size());
  const int64_t launched = is_decode ? rows : count;
  if (!is_decode && count < rows) {
    block_.add(view(drawn_rows));
    in.drawn_rows_R = block_.last_on_device(at::kLong, count);
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
  for (int64_t i = 0; i < launched; ++i) {
    uniforms[i] = 0.5;
    temperatures[i] = top_ps[i] = 1;
    min_ps[i] = 0;
    top_ks[i] = 0;
    if (i >= count) continue;
    const SamplingParams& params = drawn[i]->client.sampling;
    const bool greedy = is_greedy(params);
    if (!greedy) uniforms[i] = uniform_of(*drawn[i]);
    temperatures[i] = static_cast<float>(logprob_temperature(params));
    top_ps[i] = static_cast<float>(params.top_p);
    min_ps[i] = static_cast<float>(params.min_p);
    const int64_t top_k = std::min<int64_t>(params.top_k, std::numeric_limits<int32_t>::max());
    top_ks[i] = greedy ? 0 : static_cast<int32_t>(top_k);
  }
}

GpuRunner::Inputs GpuRunner::fill(std::span<const Chunk> chunks, int64_t rows, bool is_decode) {
  Inputs in;
  block_.begin();
  fill_sampling(chunks, rows, is_decode, in);
  fill_attention(chunks, rows, is_decode, in);
  block_.send();
  return in;
}

const kernels::GpuGraph* GpuRunner::any_graph() const {
  for (const auto& [rows, recorded] : recorded_)
    if (recorded.graph != nullptr) return recorded.graph.get();
  return nullptr;
}

Tensor GpuRunner::forward(const Inputs& in) {
  gpu_.resolve_ids_(in.ids_T, results_[0]);
  attention_.begin_step(in.batch);
  model::TokenBatch batch;
  batch.ids_T = in.ids_T;
  batch.positions_T = in.positions_T;
  return network_.forward(batch, attention_);
}

/// Returns the logits.
Tensor GpuRunner::draw(const Inputs& in, const Tensor& hidden_TH) {
  const Tensor hidden_RH =
      in.drawn_rows_R.defined() ? hidden_TH.index_select(0, in.drawn_rows_R) : hidden_TH;
  const Tensor logits_RV = kernels::logits(hidden_RH, network_.head());
  gpu_.sample(logits_RV, in.sampling, results_[0], results_[1].view(at::kFloat));
  return logits_RV;
}

void GpuRunner::send_results(int turn) {
  host_results_[turn].copy_(results_, /*non_blocking=*/true);
  ready_[turn].record(stream_);
}

bool GpuRunner::launch(std::span<const Chunk> chunks) {
  const c10::StreamGuard guard(stream_);
  Launched launched;
  launched.turn = turn_ = 1 - turn_;
  int64_t num_tokens = 0, num_drawn = 0;
  bool waits = false;
  for (const Chunk& chunk : chunks) {
    num_tokens += chunk.num_tokens;
    launched.row_of_chunk.push_back(draws_token(chunk) ? num_drawn++ : -1);
    waits |= chunk.request->wants_input_scores() ||
             needs_host(chunk.request->client, chunk.request->num_new_tokens());
  }
  if (is_recordable(chunks)) {
    const int64_t rows = padded_rows(num_tokens);
    Inputs in = fill(chunks, rows, true);
    const auto [entry, is_new] = recorded_.try_emplace(rows);
    Recorded& recorded = entry->second;
    if (is_new) {
      draw(in, forward(in));
    } else {
      if (recorded.graph == nullptr) {
        recorded.inputs = std::move(in);
        recorded.graph =
            gpu_.record([&] { draw(recorded.inputs, forward(recorded.inputs)); }, any_graph());
      }
      recorded.graph->replay();
    }
    send_results(launched.turn);
  } else {
    const Inputs in = fill(chunks, num_tokens, false);
    const Tensor hidden_TH = forward(in);
    score_prompts(chunks, hidden_TH,
                  [this](const Tensor& hidden_PH, std::span<const TokenId> targets,
                         int64_t num_top) { return score_rows(hidden_PH, targets, num_top); });
    if (num_drawn > 0) {
      const Tensor logits_RV = draw(in, hidden_TH);
      if (waits) draw_on_host(chunks, logits_RV, launched);
    }
    send_results(launched.turn);
  }
  launched_.push_back(std::move(launched));
  return !waits;
}

/// sync: these rows need the request's earlier tokens or a list of tokens, which the host makes.
void GpuRunner::draw_on_host(std::span<const Chunk> chunks, const Tensor& logits_RV,
                             Launched& launched) {
  std::vector<SampleJob> jobs;
  std::vector<int64_t> rows;
  std::vector<Tensor> copies;
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    const int64_t row = launched.row_of_chunk[i];
    const Request& request = *chunks[i].request;
    if (row < 0 || !needs_host(request.client, request.num_new_tokens())) continue;
    copies.push_back(logits_RV[row].to(at::kCPU));
    rows.push_back(row);
    jobs.push_back(
        {&request,
         {copies.back().data_ptr<float>(), static_cast<std::size_t>(copies.back().numel())},
         {}});
  }
  sample(jobs, config_.eos_ids);
  for (std::size_t i = 0; i < jobs.size(); ++i)
    launched.by_host.emplace(rows[i], std::move(jobs[i].token));
}

/// sync: scores of prompts are rare, and wanted before the request goes on.
std::vector<kernels::SampledToken> GpuRunner::score_rows(const Tensor& hidden_PH,
                                                         std::span<const TokenId> targets,
                                                         int64_t num_top) {
  const Tensor logits_PV = kernels::logits(hidden_PH.contiguous(), network_.head());
  std::vector<kernels::SampledToken> scores(targets.size());
  if (num_top > 0) {
    const Tensor on_host = logits_PV.to(at::kCPU);
    const auto vocab = static_cast<std::size_t>(on_host.size(1));
    for (std::size_t i = 0; i < targets.size(); ++i) {
      scores[i] = kernels::score_row({on_host.data_ptr<float>() + i * vocab, vocab}, targets[i],
                                     1.0, num_top);
    }
    return scores;
  }
  Tensor target_P = at::empty({static_cast<int64_t>(targets.size())}, at::TensorOptions(at::kLong));
  std::copy(targets.begin(), targets.end(), target_P.data_ptr<int64_t>());
  Tensor logprob_P = at::empty(target_P.sizes(), logits_PV.options());
  Tensor entropy_P = at::empty_like(logprob_P), logsumexp_P = at::empty_like(logprob_P);
  gpu_.device().softmax_statistics(logits_PV, target_P.to(logits_PV.device()), 1.0, logprob_P,
                                   entropy_P, logsumexp_P);
  const Tensor on_host = logprob_P.to(at::kCPU);
  for (std::size_t i = 0; i < targets.size(); ++i) {
    scores[i].id = targets[i];
    scores[i].log_prob = on_host.const_data_ptr<float>()[i];
  }
  return scores;
}

std::vector<std::optional<kernels::SampledToken>> GpuRunner::collect() {
  check(!launched_.empty(), "a step is launched before it is collected");
  Launched launched = std::move(launched_.front());
  launched_.pop_front();
  ready_[launched.turn].synchronize();  // sync: the step's tokens, while the next one computes
  const Tensor& results = host_results_[launched.turn];
  const int32_t* tokens = results.const_data_ptr<int32_t>();
  const auto* log_probs = reinterpret_cast<const float*>(tokens + results.size(1));
  std::vector<std::optional<kernels::SampledToken>> out(launched.row_of_chunk.size());
  for (std::size_t i = 0; i < out.size(); ++i) {
    const int64_t row = launched.row_of_chunk[i];
    if (row < 0) continue;
    const auto drawn = launched.by_host.find(row);
    if (drawn != launched.by_host.end()) {
      out[i] = std::move(drawn->second);
      continue;
    }
    out[i].emplace();
    out[i]->id = tokens[row];
    out[i]->log_prob = log_probs[row];
  }
  return out;
}

}  // namespace slime::engine
