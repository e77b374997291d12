#include "engine/gpu_runner.h"

#include <ATen/ATen.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>

#include "core/error.h"
#include "engine/cache_shape.h"
#include "engine/device_copies.h"
#include "engine/drawn_rows.h"
#include "engine/exact_steps.h"
#include "engine/gpu_caches.h"
#include "engine/prompt_scores.h"
#include "engine/sampler.h"
#include "kernels/gpu/recorded_rows.h"
#include "model/adapters.h"
#include "model/router_pass.h"

namespace slime::engine {
namespace {

using kernels::kPageTokens;

c10::Stream new_stream(at::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device, true);
}

/// The most tokens that a row of decode sees where kernels choose among them; 0: they do not.
int64_t sparse_keys(const kernels::Gpu& gpu, model::Network& network,
                    const StepRunnerConfig& step) {
  const model::ModelConfig& config = network.config();
  if (index_size(network.blocks()) == 0) return 0;
  const model::CacheSpec cache = cache_of_tokens(network.blocks());
  const kernels::LatentShape shape{cache.queries_per_head, config.latent.kv_rank, config.rotary_dim,
                                   config.latent.plain_dim, config.latent.value_dim};
  const at::ScalarType type = network.weights().flat().scalar_type();
  if (step.kv_dtype != type ||
      !gpu.has_sparse_decode(shape, config.indexer.num_heads, config.indexer.head_dim, type))
    return 0;
  return std::min(step.context_length, step.num_pages * kPageTokens);
}

/// Of steps' rows of decode.
StepRunnerConfig without_prompts(StepRunnerConfig config) {
  config.max_prefill_tokens = 0;
  return config;
}

kernels::Arithmetic arithmetic_for(StepArithmetic arithmetic) {
  return arithmetic == StepArithmetic::kTraining ? kernels::Arithmetic::kTraining
                                                 : kernels::Arithmetic::kFast;
}

}  // namespace

GpuRunner::Results::Results(int64_t rows, at::Device device)
    : on_device(at::zeros({3, rows}, at::TensorOptions(device).dtype(at::kInt))),
      ready{c10::Event(device.type()), c10::Event(device.type())} {
  for (Tensor& host : on_host)
    host = at::zeros({3, rows}, at::TensorOptions(at::kInt)).pin_memory();
}

GpuRunner::GpuRunner(model::Network& network, const StepRunnerConfig& config)
    : gpu_(kernels::opened_gpu()),
      network_(&network),
      config_(config),
      has_exact_steps_(engine::has_exact_steps(gpu_, network, config)),
      stream_(new_stream(network.weights().flat().device())),
      memory_(gpu_.reserve_memory(memory_bytes(network, config))),
      keys_(cache_half(network, config, *memory_, 0)),
      values_(cache_half(network, config, *memory_, 1)),
      index_keys_(index_keys_of(network, config, *memory_)),
      states_PX_(states_of(network, config, *memory_)),
      attention_(gpu_, network.blocks(), groups_of(network, config), keys_, values_, index_keys_,
                 states_PX_, sparse_keys(gpu_, network, config)),
      decode_inputs_(gpu_, network, without_prompts(config), keys_.device()),
      prompt_inputs_(gpu_, network, config, keys_.device()),
      extras_(config.eos_ids, network.config().vocab_size, keys_.device()),
      prompt_scores_(gpu_, network, config.max_prefill_tokens + config.max_running_requests),
      results_(most_drawn_rows(config), keys_.device()),
      copy_begins_(keys_.device().type(), c10::EventFlag::BACKEND_DEFAULT),
      copy_ends_(keys_.device().type(), c10::EventFlag::BACKEND_DEFAULT) {
  if (config.records_experts && network.config().has_experts())
    experts_.emplace(network.config(), config.num_pages, keys_.device());
  clear_spare_page();
  wait_for_copies(keys_.device());
}

GpuRunner::~GpuRunner() { stream_.synchronize(); }

void GpuRunner::reset() {
  try {
    stream_.synchronize();  // sync: what steps read is given back next
  } catch (const c10::Error&) {
    // It is what ended them, and was told.
  }
  launched_.clear();
  scored_.clear();
  behind_drafts_.clear();
  recorded_.clear();
  if (experts_) experts_->reset();
}

void GpuRunner::release_memory() {
  stream_.synchronize();  // sync: nothing may read or write pages that are gone
  if (kernels::gpu_abilities().gives_memory_back) memory_->unmap();
}

void GpuRunner::resume_memory() {
  memory_->map();
  clear_spare_page();
  wait_for_copies(keys_.device());
}

void GpuRunner::clear_spare_page() {
  for (const Tensor& cache : {keys_, values_, index_keys_})
    if (cache.defined()) cache.select(1, config_.num_pages).zero_();
}

void GpuRunner::copy_page(PageId from, PageId to) {
  if (experts_) experts_->copy_page(from, to);
  const c10::StreamGuard guard(stream_);
  keys_.select(1, to).copy_(keys_.select(1, from));
  if (values_.defined()) values_.select(1, to).copy_(values_.select(1, from));
  if (index_keys_.defined()) index_keys_.select(1, to).copy_(index_keys_.select(1, from));
}

void GpuRunner::copy_state(StateId from, StateId to) {
  const c10::StreamGuard guard(stream_);
  states_PX_[to].copy_(states_PX_[from]);
}

void GpuRunner::clear_states(std::span<const Chunk> chunks) {
  for (const Chunk& chunk : chunks) {
    const Request& request = *chunk.request;
    if (request.state >= 0 && request.num_computed == 0) states_PX_[request.state].zero_();
  }
}

/// The stream orders it between the steps; recorded ones read the weights where they always are.
void GpuRunner::copy_weights(const FreshWeights& fresh) {
  const c10::StreamGuard guard(stream_);
  copy_begins_.record(stream_);
  network_->trained().buffers().copy_from(fresh, /*non_blocking=*/true);
  copy_ends_.record(stream_);
}

/// Recorded steps read the weights where they were when they were recorded: each network has its own.
void GpuRunner::exchange_network(model::Network& network) {
  copy_begins_.record(stream_);
  copy_ends_.record(stream_);
  network_ = &network;
}

double GpuRunner::wait_for_weights() {
  if (!copy_ends_.was_marked_for_recording()) return 0;
  copy_ends_.synchronize();  // sync: whoever brings weights waits, not the engine's thread
  return copy_begins_.elapsedTime(copy_ends_) * 1e-3;
}

bool GpuRunner::is_recordable(const Chunk& chunk) const {
  return chunk.arithmetic == StepArithmetic::kFast && chunk.num_tokens == 1 + chunk.num_drafts &&
         draws_token(chunk) && !scores_prompt(chunk) && !has_media(chunk) &&
         (chunk.num_drafts == 0 || attention_.verifies_drafts_in_decode());
}

bool GpuRunner::verifies_drafts_of(const Request& request) const {
  return !has_penalties(request.client.sampling);
}

GpuRunner::Parts GpuRunner::parts_of(std::span<const Chunk> chunks) const {
  int64_t recordable = 0;  // rows
  for (const Chunk& chunk : chunks)
    if (is_recordable(chunk)) recordable += chunk.num_tokens;
  // Without kernels lengths decide which operations there are.
  const bool records =
      attention_.has_recordable_decode() && recordable <= kernels::kRecordedRows.back();
  Parts parts;
  std::vector<std::size_t> others;
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    const bool is_decode = records && is_recordable(chunks[i]);
    (is_decode ? parts.decode : parts.prompts).push_back(chunks[i]);
    (is_decode ? parts.num_decode_rows : parts.num_prompt_rows) += chunks[i].num_tokens;
    (is_decode ? parts.chunk_of : others).push_back(i);
  }
  parts.chunk_of.insert(parts.chunk_of.end(), others.begin(), others.end());
  return parts;
}

int64_t GpuRunner::padded_rows(int64_t rows) const {
  return *std::lower_bound(kernels::kRecordedRows.begin(), kernels::kRecordedRows.end(), rows);
}

const kernels::GpuGraph* GpuRunner::any_graph() const {
  for (const auto& [key, recorded] : recorded_)
    if (recorded.graph != nullptr) return recorded.graph.get();
  return nullptr;
}

bool GpuRunner::is_recorded(int64_t rows, bool verifies_drafts) const {
  const auto entry = recorded_.find({network_, rows, verifies_drafts});
  return entry != recorded_.end() && entry->second.graph != nullptr;
}

Tensor GpuRunner::room_for_experts(int64_t rows) const {
  return experts_ ? experts_->room(rows) : Tensor();
}

void GpuRunner::append_experts(const CachedRows& rows, std::vector<int16_t>& out) const {
  if (experts_) experts_->append(rows, out);
}

Tensor GpuRunner::forward(const GpuStepInputs& in, const Tensor& made_TYK, const Tensor& wanted_R,
                          std::span<const MediaRun> media) {
  attention_.begin_step(in);
  model::TokenBatch batch;
  batch.ids_T = in.ids_T;
  batch.rotary_row_T = in.rotary_row_T;
  batch.wanted_R = wanted_R;
  if (in.adapters.defined()) network_->adapters()->take(in.adapters);
  model::put_media(batch, media, network_->media_source());
  model::RouterPass routers;
  if (made_TYK.defined()) {
    routers.num_rows = made_TYK.size(0);
    routers.made_YTK = made_TYK.transpose(0, 1);
    batch.routers = &routers;
  }
  return network_->forward(batch, attention_);
}

Tensor GpuRunner::launch_decode(GpuStepInputs in, int64_t rows) {
  const auto compute = [this](const GpuStepInputs& inputs, const Tensor& made_TYK) {
    gpu_.resolve_ids_(inputs.ids_T, results_.on_device[0]);
    draw(inputs, forward(inputs, made_TYK), 0);
  };
  if (!config_.records_steps || !kernels::gpu_abilities().records) {
    Tensor made_TYK = room_for_experts(rows);
    compute(in, made_TYK);
    return made_TYK;
  }
  const auto [entry, is_new] = recorded_.try_emplace({network_, rows, in.verifies_drafts});
  Recorded& recorded = entry->second;
  has_prepared_ = recorded.graph == nullptr;
  if (is_new) {
    recorded.made_TYK = room_for_experts(rows);
    compute(in, recorded.made_TYK);
    return recorded.made_TYK;
  }
  if (recorded.graph == nullptr) {
    recorded.inputs = std::move(in);
    // A step with drafts is launched when nothing else runs: its drafts follow what the one before drew.
    recorded.graph = gpu_.record([&] { compute(recorded.inputs, recorded.made_TYK); }, any_graph(),
                                 recorded.inputs.verifies_drafts ? kernels::GraphLaunch::kPieces
                                                                 : kernels::GraphLaunch::kWhole);
  }
  recorded.graph->replay();
  return recorded.made_TYK;
}

Tensor GpuRunner::launch_prompts(const Parts& parts, const GpuStepInputs& in, int64_t place,
                                 Launched& launched) {
  std::vector<MediaRun> media;
  int64_t row = 0;
  bool draws = false;
  for (const Chunk& chunk : parts.prompts) {
    append_media(media, chunk, row);
    row += chunk.num_tokens;
    draws |= draws_token(chunk);
  }
  launched.scored = prompt_scores_.plan(parts.prompts, launched.turn);
  Tensor made_TYK = room_for_experts(row);
  const bool wants_all = !launched.scored.empty() || config_.computes_all_rows;
  Tensor hidden_RH = forward(in, made_TYK, wants_all ? Tensor() : in.sampled_rows_R, media);
  if (!launched.scored.empty())
    prompt_scores_.compute(*network_, hidden_RH, launched.turn, launched.scored);
  for (ScoredChunk& scored : launched.scored)
    scored.chunk = parts.chunk_of[parts.decode.size() + scored.chunk];
  if (wants_all && in.sampled_rows_R.defined())
    hidden_RH = hidden_RH.index_select(0, in.sampled_rows_R);
  if (draws) draw(in, hidden_RH, place);
  return made_TYK;
}

void GpuRunner::forget_steps_of_other_adapters() {
  const model::Adapters* adapters = network_->adapters();
  if (adapters == nullptr || adapters->num_changes() == adapter_changes_) return;
  adapter_changes_ = adapters->num_changes();
  stream_.synchronize();  // sync: steps of the old ones may still run
  recorded_.clear();
}

bool GpuRunner::launch(std::span<const Chunk> chunks) {
  const c10::StreamGuard guard(stream_);
  const StepArithmetic arithmetic = arithmetic_of(chunks);
  check(arithmetic == StepArithmetic::kFast || has_exact_steps_,
        "steps are in training arithmetic where has_exact_steps() says so");
  const kernels::ArithmeticScope scope(gpu_.device(), arithmetic_for(arithmetic));
  forget_steps_of_other_adapters();
  clear_states(chunks);
  has_prepared_ = false;
  Launched launched;
  launched.turn = results_.turn = 1 - results_.turn;
  const Parts parts = parts_of(chunks);
  const int64_t num_decode = parts.num_decode_rows, num_prompt_rows = parts.num_prompt_rows;

  std::vector<Chunk> ordered = parts.decode;
  ordered.insert(ordered.end(), parts.prompts.begin(), parts.prompts.end());
  const std::vector<kernels::RowExtras> extras =
      extras_.plan(ordered, launched.turn, launched.reports);
  for (RowReport& report : launched.reports)
    report.chunk = static_cast<int64_t>(parts.chunk_of[static_cast<std::size_t>(report.chunk)]);
  const auto extras_from = [&](int64_t begin, int64_t end) {
    return extras.empty() ? std::span<const kernels::RowExtras>()
                          : std::span(extras).subspan(static_cast<std::size_t>(begin),
                                                      static_cast<std::size_t>(end - begin));
  };
  launched.row_of_chunk.assign(chunks.size(), -1);
  launched.drafts_of_chunk.assign(chunks.size(), 0);
  int64_t num_sampled = 0;
  for (const DrawnRow& drawn : drawn_rows(ordered)) {
    const std::size_t chunk = parts.chunk_of[drawn.chunk];
    if (drawn.draw == 0) launched.row_of_chunk[chunk] = num_sampled;
    launched.drafts_of_chunk[chunk] = drawn.draw;  // in the end that of its last row
    ++num_sampled;
  }

  const int64_t decode_rows = num_decode == 0 ? 0 : padded_rows(num_decode);
  GpuStepInputs decode_in, prompt_in;
  if (num_decode > 0)
    decode_in = decode_inputs_.fill(parts.decode, extras_from(0, num_decode), places_, decode_rows,
                                    true, !is_recorded(decode_rows, has_drafts(parts.decode)));
  if (num_prompt_rows > 0) {
    prompt_in = prompt_inputs_.fill(parts.prompts, extras_from(num_decode, num_sampled), places_,
                                    num_prompt_rows, false, true);
    // Before decode draws: a prompt may end with a token of the step before.
    gpu_.resolve_ids_(prompt_in.ids_T, results_.on_device[0]);
  }
  // Padding draws too, to where the first prompts' tokens come behind it.
  Tensor decode_made, prompts_made;
  if (num_decode > 0) decode_made = launch_decode(std::move(decode_in), decode_rows);
  if (num_prompt_rows > 0) prompts_made = launch_prompts(parts, prompt_in, num_decode, launched);
  if (experts_) experts_->send({{parts.decode, decode_made}, {parts.prompts, prompts_made}});
  results_.on_host[launched.turn].copy_(results_.on_device, /*non_blocking=*/true);
  results_.ready[launched.turn].record(stream_);

  places_.clear();
  for (const int64_t row : launched.row_of_chunk)
    if (row >= 0) places_.push_back(row);
  launched_.push_back(std::move(launched));
  return true;
}

}  // namespace slime::engine
