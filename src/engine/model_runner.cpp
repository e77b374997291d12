#include "engine/model_runner.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "core/best_seconds.h"
#include "core/error.h"
#include "engine/cache_shape.h"
#include "engine/paged_plans.h"
#include "engine/prompt_scores.h"
#include "engine/sampler.h"
#include "engine/served_adapters.h"
#include "kernels/cpu/thread_pool.h"
#include "model/adapters.h"
#include "model/router_pass.h"

namespace slime::engine {
namespace {

constexpr int64_t kScoredRows = 64;  // prompt positions whose logits exist at once

Tensor int64_tensor(int64_t size) { return at::empty({size}, at::TensorOptions(at::kLong)); }

Tensor index_of(const std::vector<int64_t>& rows) {
  Tensor index = int64_tensor(static_cast<int64_t>(rows.size()));
  std::copy(rows.begin(), rows.end(), index.data_ptr<int64_t>());
  return index;
}

/// Of the adapter that a chunk's request names.
int64_t slot_of(const Chunk& chunk) { return slot_of(chunk.request->adapter); }

std::span<float> row_of(const Tensor& logits_RV, int64_t row) {
  const auto vocab = static_cast<std::size_t>(logits_RV.size(1));
  return {logits_RV.data_ptr<float>() + row * static_cast<int64_t>(vocab), vocab};
}

}  // namespace

ModelRunner::ModelRunner(model::Network& network, const StepRunnerConfig& config)
    : network_(&network),
      cache_(network.blocks(), config.kv_dtype, config.num_pages,
             cache_groups(network.blocks(), network.config().window, config.num_window_groups)),
      states_(network.blocks(), config.num_states),
      attention_(cache_, states_),
      queries_per_head_(cache_of_tokens(network.blocks()).queries_per_head),
      draft_model_(config.draft_model),
      draft_cache_(draft_cache_of(config)),
      draft_passes_(
          draft_cache_ ? draft_cache_->attention : attention_,
          draft_model_ ? draft_model_->blocks().front().cache.queries_per_head : queries_per_head_),
      computes_all_rows_(config.computes_all_rows),
      eos_ids_(config.eos_ids) {
  const model::ModelConfig& model = network.config();
  if (config.records_experts && model.has_experts())
    experts_.emplace(config.num_pages, kernels::kPageTokens, model.routing_width());
}

std::unique_ptr<ModelRunner::DraftCache> ModelRunner::draft_cache_of(
    const StepRunnerConfig& config) {
  if (config.draft_model == nullptr) return nullptr;
  return std::make_unique<DraftCache>(*config.draft_model, config.kv_dtype, config.num_pages);
}

/// Also of layers with a window: what lies beside those is nobody's.
void ModelRunner::copy_page(PageId from, PageId to) {
  cache_.copy_page(from, to);
  if (draft_cache_) draft_cache_->cache.copy_page(from, to);
  if (experts_) experts_->copy_page(from, to);
}

void ModelRunner::record_experts(std::span<const Chunk> chunks, const Tensor& made_TYK) {
  const auto* row = made_TYK.const_data_ptr<int16_t>();
  for (const Chunk& chunk : chunks) {
    const Request& request = *chunk.request;
    for (int64_t i = 0; i < chunk.num_tokens; ++i, row += experts_->width()) {
      const int64_t position = request.num_computed + i;
      const auto place = experts_->at(request.pages[position / kernels::kPageTokens],
                                      position % kernels::kPageTokens);
      std::copy_n(row, experts_->width(), place.begin());
    }
  }
}

void ModelRunner::append_experts(const CachedRows& rows, std::vector<int16_t>& out) const {
  if (experts_) experts_->append(rows, out);
}

Tensor ModelRunner::forward(std::span<const Chunk> chunks, const Tensor& wanted_R,
                            model::HiddenCapture* captured) {
  int64_t num_tokens = 0;
  for (const Chunk& chunk : chunks) num_tokens += chunk.num_tokens;
  model::TokenBatch batch;
  batch.wanted_R = wanted_R;
  batch.captured = captured;
  batch.ids_T = int64_tensor(num_tokens);
  batch.rotary_row_T = int64_tensor(num_tokens);
  auto* ids = batch.ids_T.data_ptr<int64_t>();
  auto* rotary_rows = batch.rotary_row_T.data_ptr<int64_t>();
  std::vector<const Request*> requests;
  std::vector<kernels::PagedSequence> sequences;
  std::vector<StateId> states;
  std::vector<MediaRun> media;
  int64_t row = 0;
  for (const Chunk& chunk : chunks) {
    const Request& request = *chunk.request;
    append_media(media, chunk, row);
    requests.push_back(&request);
    sequences.push_back({.first_row = row,
                         .num_rows = chunk.num_tokens,
                         .num_keys = request.num_computed + chunk.num_tokens});
    if (request.state >= 0) {
      if (request.num_computed == 0) states_.clear(request.state);
      states.push_back(request.state);
    }
    batch.segments.push_back({.begin = row, .end = row + chunk.num_tokens});
    for (int64_t i = 0; i < chunk.num_tokens; ++i, ++row) {
      ids[row] = request.tokens[request.num_computed + i];
      rotary_rows[row] = rotary_row(request, request.num_computed + i);
    }
  }
  model::put_media(batch, media, network_->media_source());
  if (chooses_adapters()) {
    std::vector<int64_t> slots;
    for (const Chunk& chunk : chunks)
      slots.insert(slots.end(), static_cast<std::size_t>(chunk.num_tokens), slot_of(chunk));
    batch.adapter_T = index_of(slots);
  }
  attention_.begin_step(paged_plans(requests, std::move(sequences), queries_per_head_),
                        std::move(states));
  if (!experts_) return network_->forward(batch, attention_);
  const model::ModelConfig& model = network_->config();
  model::RouterPass routers;
  const Tensor made_TYK =
      at::zeros({row, model.num_layers, model.experts.per_token}, at::TensorOptions(at::kShort));
  routers.made_YTK = made_TYK.transpose(0, 1);
  batch.routers = &routers;
  Tensor hidden_TH = network_->forward(batch, attention_);
  record_experts(chunks, made_TYK);
  return hidden_TH;
}

std::vector<kernels::SampledToken> ModelRunner::score(const Chunk& chunk, const Tensor& hidden_TH,
                                                      int64_t first_row) {
  const ScoredPositions scored = scored_positions(chunk);
  const Request& request = *chunk.request;
  std::vector<kernels::SampledToken> scores(static_cast<std::size_t>(scored.count()));
  const int64_t row = first_row + first_scoring_row(chunk, scored);
  for (int64_t begin = 0; begin < scored.count(); begin += kScoredRows) {
    const int64_t count = std::min(kScoredRows, scored.count() - begin);
    if (chooses_adapters())
      network_->adapters()->take(at::full({count}, slot_of(chunk), at::kLong));
    const Tensor logits_PV = network_->logits(hidden_TH.narrow(0, row + begin, count));
    kernels::cpu::parallel_chunks(count, [&](int64_t i) {
      scores[begin + i] =
          kernels::score_row(row_of(logits_PV, i), request.tokens[scored.begin + begin + i], 1.0,
                             request.client.top_logprobs_num, request.client.token_ids_logprob);
    });
  }
  return scores;
}

bool ModelRunner::chooses_adapters() const {
  return network_->adapters() != nullptr && network_->adapters()->chooses_by_row();
}

void ModelRunner::release_memory() {
  cache_.release_memory();
  states_.release_memory();
  if (draft_cache_) draft_cache_->cache.release_memory();
}

void ModelRunner::copy_weights(const FreshWeights& fresh) {
  const FreshWeights own = network_->trained().buffers();
  // A trainer has no draft layers, which stand behind all other weights and stay as they are.
  const FreshWeights to = network_->num_draft_layers() > 0 ? own.beginning_as(fresh) : own;
  copy_seconds_ = best_seconds(1, [&] { to.copy_from(fresh); });
}

bool ModelRunner::launch(std::span<const Chunk> chunks) {
  outcome_ = {};
  outcome_.sampled.assign(chunks.size(), std::nullopt);
  outcome_.behind_drafts.assign(chunks.size(), {});
  outcome_.foretold.assign(chunks.size(), {});
  std::vector<int64_t> rows;  // last ones of chunks that draw, with those of drafts
  int64_t num_rows = 0;
  for (const Chunk& chunk : chunks) {
    num_rows += chunk.num_tokens;
    if (!draws_token(chunk)) continue;
    for (int64_t i = chunk.num_drafts; i >= 0; --i) rows.push_back(num_rows - 1 - i);
  }
  const Tensor sampled_R = static_cast<int64_t>(rows.size()) < num_rows ? index_of(rows) : Tensor();
  const bool scores = std::ranges::any_of(chunks, scores_prompt);
  const bool feeds_layer = std::ranges::any_of(chunks, &Chunk::feeds_draft_layer);
  const bool wants_all = scores || computes_all_rows_ || feeds_layer;
  model::HiddenCapture captured;
  const bool captures = feeds_layer && draft_model_ != nullptr;
  if (captures) captured.layers = draft_model_->form().captured_layers;
  const Tensor hidden_TH =
      forward(chunks, wants_all ? Tensor() : sampled_R, captures ? &captured : nullptr);
  for (int64_t i = 0, first_row = 0; scores && i < std::ssize(chunks); ++i) {
    outcome_.scores.push_back(score(chunks[i], hidden_TH, first_row));
    first_row += chunks[i].num_tokens;
  }
  const bool picks = wants_all && sampled_R.defined();
  if (!rows.empty()) draw(chunks, picks ? hidden_TH.index_select(0, sampled_R) : hidden_TH);
  if (feeds_layer) outcome_.foretold = foretold(chunks, hidden_TH, captured);
  return false;
}

std::vector<std::vector<Draft>> ModelRunner::foretold(std::span<const Chunk> chunks,
                                                      const Tensor& hidden_TH,
                                                      const model::HiddenCapture& captured) {
  if (draft_model_ == nullptr) {
    LayerDrafter drafter(*network_);
    return draft_passes_.run(drafter, *network_, chunks, hidden_TH, drawn_ids(chunks));
  }
  Eagle3Drafter drafter(*draft_model_, *network_);
  return draft_passes_.run(drafter, *network_, chunks, captured.hidden_TC, drawn_ids(chunks));
}

void ModelRunner::draw(std::span<const Chunk> chunks, const Tensor& hidden_RH) {
  std::vector<SampleJob> jobs;
  std::vector<int64_t> slots;
  for (const Chunk& chunk : chunks) {
    if (!draws_token(chunk)) continue;
    const auto end = static_cast<int64_t>(chunk.request->tokens.size());
    for (int64_t i = chunk.num_drafts; i >= 0; --i) {
      jobs.push_back(
          {.request = chunk.request, .position = end - i, .num_drafts = chunk.num_drafts});
      slots.push_back(slot_of(chunk));
    }
  }
  if (chooses_adapters()) network_->adapters()->take(index_of(slots));
  const Tensor logits_RV = network_->logits(hidden_RH);
  for (std::size_t i = 0; i < jobs.size(); ++i)
    jobs[i].logits_V = row_of(logits_RV, static_cast<int64_t>(i));
  sample(jobs, eos_ids_);
  std::size_t next = 0;
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    if (!draws_token(chunks[i])) continue;
    outcome_.sampled[i] = std::move(jobs[next++].token);
    for (int64_t draft = 0; draft < chunks[i].num_drafts; ++draft)
      outcome_.behind_drafts[i].push_back(std::move(jobs[next++].token));
  }
}

std::vector<std::vector<TokenId>> ModelRunner::drawn_ids(std::span<const Chunk> chunks) const {
  std::vector<std::vector<TokenId>> drawn(chunks.size());
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    if (!outcome_.sampled[i]) continue;
    drawn[i].push_back(outcome_.sampled[i]->id);
    for (const kernels::SampledToken& token : outcome_.behind_drafts[i])
      drawn[i].push_back(token.id);
  }
  return drawn;
}

std::vector<std::optional<kernels::SampledToken>> ModelRunner::collect() {
  return std::exchange(outcome_.sampled, {});
}

std::vector<kernels::SampledToken> ModelRunner::take_behind_drafts(std::size_t chunk) {
  check(chunk < outcome_.behind_drafts.size(), "a chunk with drafts is of the collected step");
  return std::move(outcome_.behind_drafts[chunk]);
}

std::vector<Draft> ModelRunner::take_foretold(std::size_t chunk) {
  check(chunk < outcome_.foretold.size(), "a chunk that is foretold is of the collected step");
  return std::move(outcome_.foretold[chunk]);
}

std::vector<kernels::SampledToken> ModelRunner::take_scores(std::size_t chunk) {
  check(chunk < outcome_.scores.size(), "a chunk that scores is of the collected step");
  return std::move(outcome_.scores[chunk]);
}

}  // namespace slime::engine
