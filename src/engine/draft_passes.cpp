#include "engine/draft_passes.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "core/error.h"
#include "engine/paged_plans.h"
#include "engine/sampling_params.h"
#include "engine/served_adapters.h"
#include "kernels/cpu/sample.h"
#include "kernels/cpu/thread_pool.h"
#include "model/adapters.h"

namespace slime::engine {
namespace {

Tensor numbers_of(const std::vector<int64_t>& numbers) { return at::tensor(numbers, at::kLong); }

bool chooses_adapters(const model::Network& network) {
  return network.adapters() != nullptr && network.adapters()->chooses_by_row();
}

/// Drafts that are what was drawn in their place, up to the first that is not.
int64_t num_right(const Chunk& chunk, std::span<const TokenId> drawn) {
  const std::span<const TokenId> drafts =
      std::span(chunk.request->tokens).last(static_cast<std::size_t>(chunk.num_drafts));
  return std::ranges::mismatch(drafts, drawn).in1 - drafts.begin();
}

/// The best guess, and how likely it is by what the drafter says.
Draft guess_of(const Drafter& drafter, const Tensor& logits_RV, int64_t row, const Request& request,
               double chance_before) {
  const auto vocab = static_cast<std::size_t>(logits_RV.size(1));
  const kernels::SampledToken best = kernels::sample_row(
      {logits_RV.const_data_ptr<float>() + row * logits_RV.size(1), vocab},
      {.temperature = logprob_temperature(request.client.sampling), .greedy = true});
  const double chance = std::exp(static_cast<double>(best.log_prob));
  return {.id = drafter.token_of(best.id),
          .chance = std::isnan(chance) ? 0 : chance_before * chance};
}

}  // namespace

Tensor DraftPasses::pass(Drafter& drafter, model::Network& network, const Tensor& hidden_RH,
                         Rows rows, const std::vector<int64_t>& wanted) {
  model::TokenBatch batch;
  batch.ids_T = numbers_of(rows.ids);
  batch.rotary_row_T = numbers_of(rows.rotary_rows);
  for (const kernels::PagedSequence& sequence : rows.sequences)
    batch.segments.push_back(
        {.begin = sequence.first_row, .end = sequence.first_row + sequence.num_rows});
  if (wanted.size() < rows.ids.size()) batch.wanted_R = numbers_of(wanted);
  if (chooses_adapters(network)) batch.adapter_T = numbers_of(rows.slots);
  model::put_media(batch, rows.media, network.media_source());
  attention_.begin_step(paged_plans(rows.requests, std::move(rows.sequences), queries_per_head_),
                        {});
  return drafter.pass(hidden_RH, batch, attention_);
}

void DraftPasses::foretell(Drafter& drafter, model::Network& network, const Tensor& hidden_RH,
                           std::span<const Chunk> chunks, std::span<const Tail> tails,
                           std::vector<std::vector<Draft>>& foretold) {
  if (chooses_adapters(network)) {
    std::vector<int64_t> slots;
    for (const Tail& tail : tails) slots.push_back(slot_of(chunks[tail.chunk].request->adapter));
    network.adapters()->take(numbers_of(slots));
  }
  const Tensor logits_RV = drafter.logits(hidden_RH);
  kernels::cpu::parallel_chunks(std::ssize(tails), [&](int64_t i) {
    std::vector<Draft>& guesses = foretold[tails[i].chunk];
    const double before = guesses.empty() ? 1 : guesses.back().chance;
    guesses.push_back(guess_of(drafter, logits_RV, i, *chunks[tails[i].chunk].request, before));
  });
}

std::vector<std::vector<Draft>> DraftPasses::run(Drafter& drafter, model::Network& network,
                                                 std::span<const Chunk> chunks,
                                                 const Tensor& hidden_TC,
                                                 std::span<const std::vector<TokenId>> drawn) {
  std::vector<std::vector<Draft>> foretold(chunks.size());
  Rows rows;
  std::vector<int64_t> taken;   // rows of the step
  std::vector<int64_t> wanted;  // rows of the pass
  std::vector<Tail> tails;
  int64_t first_row = 0;
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    const Chunk& chunk = chunks[i];
    const Request& request = *chunk.request;
    const int64_t row_of_chunk = std::exchange(first_row, first_row + chunk.num_tokens);
    if (!chunk.feeds_draft_layer) continue;
    const auto num_known = static_cast<int64_t>(request.tokens.size()) - chunk.num_drafts;
    // Rows whose token and the one behind it are there: of a prompt that goes on all, otherwise as far as drawn.
    const int64_t num_there =
        chunk.completes() ? num_known - 1 + (drawn[i].empty() ? 0 : 1 + num_right(chunk, drawn[i]))
                          : request.num_computed + chunk.num_tokens;
    const int64_t num_rows = num_there - request.num_computed;
    if (num_rows <= 0) continue;
    rows.requests.push_back(&request);
    rows.sequences.push_back({.first_row = std::ssize(rows.ids),
                              .num_rows = num_rows,
                              .num_keys = request.num_computed + num_rows});
    if (!request.client.media.empty())
      append_runs(rows.media, request.client.media, request.num_computed + 1, num_there + 1,
                  std::ssize(rows.ids));
    for (int64_t position = request.num_computed; position < num_there; ++position) {
      const int64_t behind = position + 1;
      taken.push_back(row_of_chunk + position - request.num_computed);
      rows.ids.push_back(behind < num_known ? request.tokens[behind]
                                            : drawn[i][behind - num_known]);
      rows.rotary_rows.push_back(rotary_row(request, position));
      rows.slots.push_back(slot_of(request.adapter));
    }
    if (chunk.num_foretold == 0) continue;
    check(chunk.completes() && !drawn[i].empty(), "what is foretold comes behind a drawn token");
    foretold[i].reserve(static_cast<std::size_t>(chunk.num_foretold));
    wanted.push_back(std::ssize(rows.ids) - 1);
    tails.push_back({.chunk = i, .position = num_there - 1});
  }
  if (taken.empty()) return foretold;
  const Tensor fed_RC =
      std::ssize(taken) == first_row ? hidden_TC : hidden_TC.index_select(0, numbers_of(taken));
  Tensor last_RH = pass(drafter, network, drafter.first_states(fed_RC), std::move(rows), wanted);
  while (!tails.empty()) {
    foretell(drafter, network, last_RH, chunks, tails, foretold);
    std::vector<Tail> longer;
    std::vector<int64_t> kept;
    Rows next;
    for (std::size_t i = 0; i < tails.size(); ++i) {
      const Chunk& chunk = chunks[tails[i].chunk];
      const std::vector<Draft>& guesses = foretold[tails[i].chunk];
      if (std::ssize(guesses) >= chunk.num_foretold) continue;
      const int64_t position = tails[i].position + 1;
      kept.push_back(static_cast<int64_t>(i));
      longer.push_back({.chunk = tails[i].chunk, .position = position});
      next.requests.push_back(chunk.request);
      next.sequences.push_back(
          {.first_row = std::ssize(next.ids), .num_rows = 1, .num_keys = position + 1});
      next.ids.push_back(guesses.back().id);
      next.rotary_rows.push_back(rotary_row(*chunk.request, position));
      next.slots.push_back(slot_of(chunk.request->adapter));
    }
    tails = std::move(longer);
    if (tails.empty()) break;
    std::vector<int64_t> all(kept.size());
    std::iota(all.begin(), all.end(), 0);
    last_RH =
        pass(drafter, network, last_RH.index_select(0, numbers_of(kept)), std::move(next), all);
  }
  return foretold;
}

}  // namespace slime::engine
