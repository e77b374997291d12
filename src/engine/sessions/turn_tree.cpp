#include "engine/sessions/turn_tree.h"

#include <algorithm>
#include <utility>

namespace slime::engine {
namespace {

/// Whether `tokens` has `part` at `at`.
bool has_part(std::span<const TokenId> tokens, std::size_t at, std::span<const TokenId> part) {
  return at + part.size() <= tokens.size() &&
         std::ranges::equal(tokens.subspan(at, part.size()), part);
}

bool continues_with(std::span<const TokenId> prompt, std::size_t at, const SessionTurn& turn) {
  return !turn.is_forgotten && has_part(prompt, at, turn.context) &&
         has_part(prompt, at + turn.context.size(), turn.output);
}

bool begins_with(std::span<const TokenId> prompt, const SessionTurn& turn) {
  for (const SessionTurn* each = &turn; each != nullptr; each = each->parent) {
    if (!continues_with(prompt, static_cast<std::size_t>(each->num_before), *each)) return false;
  }
  return true;
}

}  // namespace

std::size_t SessionTurn::num_bytes() const {
  std::size_t bytes = sizeof(SessionTurn) + end_mark.size();
  bytes += (context.size() + output.size()) * sizeof(TokenId) + log_probs.size() * sizeof(float);
  bytes += top_p_ids.size() * sizeof(TokenId) + top_p_counts.size() * sizeof(int64_t) +
           top_p_log_probs.size() * sizeof(float);
  bytes += versions.size() * sizeof(VersionRun);
  for (const auto& [name, value] : message)
    bytes += name.size() + (value.is_string() ? value.get_string().size() : 0);
  return bytes;
}

SessionTurn* TurnTree::parent_of(std::span<const TokenId> prompt, SessionTurn* recognised) const {
  if (recognised != nullptr && begins_with(prompt, *recognised)) return recognised;
  SessionTurn* parent = nullptr;
  std::size_t length = 0;
  for (;;) {
    SessionTurn* next = nullptr;
    for (SessionTurn* child : parent == nullptr ? roots_ : parent->children) {
      if (!continues_with(prompt, length, *child)) continue;
      if (next == nullptr || (!next->children.empty() && child->children.empty())) next = child;
    }
    if (next == nullptr) return parent;
    parent = next;
    length = static_cast<std::size_t>(next->num_tokens());
  }
}

SessionTurn& TurnTree::add(SessionTurn turn, SessionTurn* recognised) {
  SessionTurn& added = *turns_.emplace_back(std::make_unique<SessionTurn>(std::move(turn)));
  added.id = static_cast<int64_t>(turns_.size());
  added.parent = parent_of(added.context, recognised);
  added.num_before = added.parent == nullptr ? 0 : added.parent->num_tokens();
  added.context.erase(added.context.begin(), added.context.begin() + added.num_before);
  added.context.shrink_to_fit();
  (added.parent == nullptr ? roots_ : added.parent->children).push_back(&added);
  return added;
}

bool TurnTree::forget(SessionTurn& turn) {
  if (!turn.children.empty()) return false;
  turn.is_forgotten = true;
  std::erase(turn.parent == nullptr ? roots_ : turn.parent->children, &turn);
  turn.context = {};
  turn.output = {};
  turn.log_probs = {};
  turn.top_p_ids = {};
  turn.top_p_counts = {};
  turn.top_p_log_probs = {};
  turn.message = {};
  return true;
}

std::vector<TokenId> TurnTree::tokens_of(const SessionTurn& turn) {
  std::vector<TokenId> tokens(static_cast<std::size_t>(turn.num_tokens()));
  for (const SessionTurn* each = &turn; each != nullptr; each = each->parent) {
    const auto at = tokens.begin() + each->num_before;
    std::ranges::copy(each->output, std::ranges::copy(each->context, at).out);
  }
  return tokens;
}

}  // namespace slime::engine
