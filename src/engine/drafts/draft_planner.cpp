#include "engine/drafts/draft_planner.h"

#include <algorithm>
#include <functional>
#include <string>
#include <utility>

#include "engine/drafts/draft_choice.h"
#include "engine/drafts/forced_drafts.h"
#include "engine/step_runner.h"

namespace slime::engine {
namespace {

/// A chunk whose request may get drafts: its last token is known, and what may follow is not bound to
/// tokens that nobody knows yet.
bool may_have_drafts(const Chunk& chunk, const DraftPlanner::VerifiesFn& verifies) {
  const Request& request = *chunk.request;
  return chunk.num_tokens == 1 && draws_token(chunk) && request.constraint == nullptr &&
         request.state < 0 && request.tokens.back() != kPendingToken && verifies(request);
}

/// Texts of other adapters and other tenants are never drafts.
std::string salt_of(const GenerateRequest& request) {
  return request.adapter + '\0' + request.cache_salt;
}

double num_expected(const std::vector<Draft>& drafts) {
  double sum = 0;
  for (const Draft& draft : drafts) sum += draft.chance;
  return sum;
}

Drafting& drafting_of(Request& request) {
  if (request.drafting == nullptr) request.drafting = std::make_shared<Drafting>();
  return *request.drafting;
}

/// Drafts of later steps may be taken; masks of a grammar need tokens one by one.
bool may_use_layer(const Request& request) {
  return request.constraint == nullptr && request.state < 0 &&
         request.client.sampling.max_new_tokens > 1;
}

}  // namespace

void DraftPlanner::follow(Request& request) {
  if (!settings_.texts) return;
  const std::span<const TokenId> tokens(request.tokens);
  const auto num_given =
      static_cast<std::size_t>(request.prompt_length - request.client.num_sampled);
  Drafting& drafting = drafting_of(request);
  if (drafting.text == nullptr)
    drafting.text = texts_.begin(tokens.first(num_given), salt_of(request.client));
  std::span<const TokenId> response = tokens.subspan(num_given);
  if (!response.empty() && response.back() == kPendingToken)
    response = response.first(response.size() - 1);
  drafting.text->follow(response);
}

std::vector<Draft> DraftPlanner::proposed(Request& request, int64_t most) {
  follow(request);
  Drafting& drafting = drafting_of(request);
  std::vector<Draft> of_texts, of_layer = std::exchange(drafting.foretold, {});
  if (settings_.forced_acceptance) {
    propose_forced(request, most, *settings_.forced_acceptance, of_texts);
  } else if (drafting.text != nullptr) {
    drafting.text->propose(most, of_texts);
  }
  if (std::ssize(of_layer) > most) of_layer.resize(static_cast<std::size_t>(most));
  if (!settings_.always) {
    drafting.of_texts.calibrate(of_texts);
    drafting.of_layer.calibrate(of_layer);
  }
  drafting.is_of_layer = num_expected(of_layer) > num_expected(of_texts);
  return drafting.is_of_layer ? of_layer : of_texts;
}

void DraftPlanner::add_drafts(std::vector<Chunk>& chunks, Scheduler& scheduler,
                              const VerifiesFn& verifies) {
  std::vector<Chunk*> drafting;
  int64_t num_rows = 0;
  bool runs_ahead = false;
  for (Chunk& chunk : chunks) {
    num_rows += chunk.num_tokens;
    runs_ahead |= chunk.request->tokens.back() == kPendingToken;
    if (may_have_drafts(chunk, verifies)) drafting.push_back(&chunk);
  }
  // The longest response first: it is the one that others will wait for.
  std::ranges::stable_sort(drafting, std::greater(),
                           [](const Chunk* it) { return it->request->num_new_tokens(); });
  // Of a step that is full already none is chosen.
  const int64_t most = settings_.always || num_rows < kMostDraftedRows ? settings_.most : 0;
  std::vector<std::vector<Draft>> drafts;
  for (const Chunk* chunk : drafting)
    drafts.push_back(proposed(*chunk->request, scheduler.most_drafts(*chunk, most)));
  if (!settings_.always && num_rows > 0) {
    const std::vector<int64_t> chosen = choose_drafts(drafts, num_rows, kMostDraftedRows, costs_);
    for (std::size_t i = 0; i < drafts.size(); ++i)
      drafts[i].resize(static_cast<std::size_t>(chosen[i]));
  }
  for (std::size_t i = 0; i < drafting.size(); ++i) {
    // Pages are for those that are chosen alone: others may need them.
    const int64_t room = scheduler.room_for_drafts(*drafting[i], std::ssize(drafts[i]));
    drafts[i].resize(static_cast<std::size_t>(room));
    for (const Draft& draft : drafts[i]) drafting[i]->request->tokens.push_back(draft.id);
    drafting[i]->num_drafts = static_cast<int64_t>(drafts[i].size());
    drafting[i]->num_tokens += drafting[i]->num_drafts;
  }
  if (settings_.foretells())
    for (Chunk& chunk : chunks) feed_layer(chunk, scheduler);
  if (runs_ahead) return expectation_.ran_ahead();
  expectation_.planned(
      std::ranges::any_of(drafting, [](const Chunk* chunk) { return chunk->num_drafts > 0; }));
}

void DraftPlanner::feed_layer(Chunk& chunk, Scheduler& scheduler) {
  Request& request = *chunk.request;
  if (!may_use_layer(request)) return;
  Drafting& drafting = drafting_of(request);
  drafting.foretold.clear();  // of a step before this one
  chunk.feeds_draft_layer = true;
  // Behind the token that is drawn a further one has to be drawn for a draft to be verified.
  const int64_t left = request.max_tokens - static_cast<int64_t>(request.tokens.size()) - 1;
  if (!draws_token(chunk) || left < 1) return;
  const int64_t wanted = std::min(settings_.always ? settings_.most : drafting.num_wanted, left);
  // Behind the first one, the layer's keys are written where no token is yet.
  chunk.num_foretold = 1 + scheduler.room_for_drafts(chunk, wanted - 1);
}

void DraftPlanner::note_foretold(Request& request, std::vector<Draft> foretold) {
  drafting_of(request).foretold = std::move(foretold);
}

bool DraftPlanner::is_right(const Request& request, int64_t position, TokenId draft,
                            TokenId drawn) const {
  if (settings_.forced_acceptance)
    return is_forced_right(request, position, *settings_.forced_acceptance);
  return draft == drawn;
}

void DraftPlanner::note_kept(const Request& request, int64_t num_drafted, int64_t num_kept) {
  if (request.drafting == nullptr) return;
  Drafting& drafting = *request.drafting;
  // One more than were right: a longer chain is tried step by step, and one that was wrong early is not made again.
  drafting.num_wanted = std::min(num_kept + 1, settings_.most);
  if (settings_.always) return;
  (drafting.is_of_layer ? drafting.of_layer : drafting.of_texts).told(num_drafted, num_kept);
}

}  // namespace slime::engine
