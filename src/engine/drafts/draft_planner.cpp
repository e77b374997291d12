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

constexpr int64_t kMostRows = 1024;  // of a step with drafts

/// A chunk whose request may get drafts: its last token is known, and what may follow is not bound to
/// tokens that nobody knows yet.
bool may_have_drafts(const Chunk& chunk) {
  const Request& request = *chunk.request;
  return chunk.num_tokens == 1 && draws_token(chunk) && request.constraint == nullptr &&
         request.state < 0 && request.tokens.back() != kPendingToken;
}

/// Texts of other adapters and other tenants are never drafts.
std::string salt_of(const GenerateRequest& request) {
  return request.adapter + '\0' + request.cache_salt;
}

}  // namespace

void DraftPlanner::follow(Request& request) {
  const std::span<const TokenId> tokens(request.tokens);
  const auto num_given =
      static_cast<std::size_t>(request.prompt_length - request.client.num_sampled);
  if (request.drafting == nullptr) {
    request.drafting = std::make_shared<Drafting>();
    request.drafting->text = texts_.begin(tokens.first(num_given), salt_of(request.client));
  }
  std::span<const TokenId> response = tokens.subspan(num_given);
  if (!response.empty() && response.back() == kPendingToken)
    response = response.first(response.size() - 1);
  request.drafting->text->follow(response);
}

void DraftPlanner::add_drafts(std::vector<Chunk>& chunks, Scheduler& scheduler) {
  std::vector<Chunk*> drafting;
  int64_t num_rows = 0;
  for (Chunk& chunk : chunks) {
    num_rows += chunk.num_tokens;
    if (may_have_drafts(chunk)) drafting.push_back(&chunk);
  }
  // The longest response first: it is the one that others will wait for.
  std::ranges::stable_sort(drafting, std::greater(),
                           [](const Chunk* it) { return it->request->num_new_tokens(); });
  std::vector<std::vector<Draft>> drafts(drafting.size());
  for (std::size_t i = 0; i < drafting.size(); ++i) {
    Request& request = *drafting[i]->request;
    follow(request);
    const int64_t room = scheduler.room_for_drafts(*drafting[i], settings_.most);
    if (settings_.forced_acceptance) {
      propose_forced(request, room, *settings_.forced_acceptance, drafts[i]);
    } else {
      request.drafting->text->propose(room, drafts[i]);
    }
    if (!settings_.always) request.drafting->acceptance.calibrate(drafts[i]);
  }
  if (!settings_.always && num_rows > 0) {
    const std::vector<int64_t> chosen = choose_drafts(drafts, num_rows, kMostRows, costs_);
    for (std::size_t i = 0; i < drafts.size(); ++i)
      drafts[i].resize(static_cast<std::size_t>(chosen[i]));
  }
  for (std::size_t i = 0; i < drafting.size(); ++i) {
    for (const Draft& draft : drafts[i]) drafting[i]->request->tokens.push_back(draft.id);
    drafting[i]->num_drafts = static_cast<int64_t>(drafts[i].size());
    drafting[i]->num_tokens += drafting[i]->num_drafts;
  }
}

void DraftPlanner::note_step(std::span<const Chunk> chunks, double seconds) {
  int64_t num_rows = 0;
  for (const Chunk& chunk : chunks) {
    if (chunk.num_tokens - chunk.num_drafts > 1) return;  // a prompt's step says nothing of decode
    num_rows += chunk.num_tokens;
  }
  costs_.observe(num_rows, seconds);
}

bool DraftPlanner::is_right(const Request& request, int64_t position, TokenId draft,
                            TokenId drawn) const {
  if (settings_.forced_acceptance)
    return is_forced_right(request, position, *settings_.forced_acceptance);
  return draft == drawn;
}

void DraftPlanner::note_kept(const Request& request, int64_t num_drafted, int64_t num_kept) {
  if (request.drafting != nullptr && !settings_.always)
    request.drafting->acceptance.told(num_drafted, num_kept);
}

}  // namespace slime::engine
