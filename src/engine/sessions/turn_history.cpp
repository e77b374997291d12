#include "engine/sessions/turn_history.h"

#include <algorithm>
#include <tuple>

#include "engine/sessions/turn_tree.h"

namespace slime::engine {
namespace {

using Node = TurnHistory::Node;

bool is_like(const Node& node, const MessageUnit& unit) {
  if (node.is_forgotten) return false;
  if (node.turn == nullptr) return node.whole == unit.whole;
  if (!unit.is_assistant || node.calls != unit.calls) return false;
  if (!unit.has_text && unit.num_calls > 0)
    return true;  // a client that drops the text next to a call
  return std::ranges::find(node.said, unit.words) != node.said.end();
}

/// Of several turns that say the same: the one with these ids, these thoughts, without a continuation, the
/// latest.
auto likeness(const Node& node, const MessageUnit& unit) {
  const bool has_ids = !node.call_ids.empty() && node.call_ids == unit.call_ids;
  const bool has_thoughts = unit.thoughts != TextKey() && node.thoughts == unit.thoughts;
  return std::tuple(has_ids, has_thoughts, node.children.empty(), node.turn->id);
}

/// The turns on the way to a node at `depth` units, the first ones of `units`.
std::vector<std::pair<SessionTurn*, MessageUnit>> turns_up_to(const Node& last,
                                                              const std::vector<MessageUnit>& units,
                                                              std::size_t depth) {
  std::vector<std::pair<SessionTurn*, MessageUnit>> turns;
  const Node* node = &last;
  for (std::size_t i = depth; i-- > 0; node = node->parent) {
    if (node->turn != nullptr) turns.emplace_back(node->turn, units[i]);
  }
  std::ranges::reverse(turns);
  return turns;
}

std::optional<TurnHistory::Found> find_below(Node& root, const std::vector<MessageUnit>& units) {
  std::vector<Node*> level{&root};
  Node* last = nullptr;
  std::size_t depth = 0;
  for (std::size_t i = 0; i < units.size() && !level.empty(); ++i) {
    std::vector<Node*> next;
    Node* best = nullptr;
    for (Node* node : level) {
      for (Node* child : node->children) {
        if (!is_like(*child, units[i])) continue;
        next.push_back(child);
        if (child->turn == nullptr) continue;
        if (best == nullptr || likeness(*best, units[i]) < likeness(*child, units[i])) best = child;
      }
    }
    if (best != nullptr) std::tie(last, depth) = std::pair(best, i + 1);
    level = std::move(next);
  }
  if (last == nullptr) return std::nullopt;
  return TurnHistory::Found{
      .node = last, .unit = units[depth - 1], .turns = turns_up_to(*last, units, depth)};
}

}  // namespace

Node& TurnHistory::add(Node* parent) {
  Node& node = *nodes_.emplace_back(std::make_unique<Node>());
  node.parent = parent;
  if (parent != nullptr) parent->children.push_back(&node);
  return node;
}

std::optional<TurnHistory::Found> TurnHistory::find(const json::array& messages,
                                                    const TextKey& offer) const {
  const auto root = roots_.find(offer);
  if (root == roots_.end()) return std::nullopt;
  // A turn may come back as two messages, and two turns may follow one another.
  std::optional<Found> joined = find_below(*root->second, units_of(messages, Joining::kAllRoles));
  std::optional<Found> apart =
      find_below(*root->second, units_of(messages, Joining::kAllButAssistants));
  if (!joined || (apart && apart->unit.end > joined->unit.end)) return apart;
  return joined;
}

Node& TurnHistory::record(SessionTurn& turn, const json::array& messages, const TextKey& offer,
                          const std::optional<Found>& found, const json::object& reply,
                          const std::vector<std::string>& also_said) {
  const auto [root, is_new] = roots_.try_emplace(offer, nullptr);
  if (is_new) root->second = &add(nullptr);
  Node* node = root->second;
  json::array rest;
  const bool goes_on = found && !found->node->is_forgotten;
  const std::size_t depth = goes_on ? found->unit.end : 0;
  if (goes_on) node = found->node;
  rest.insert(rest.end(), messages.begin() + static_cast<std::ptrdiff_t>(depth), messages.end());
  for (const MessageUnit& unit : units_of(rest, Joining::kAllRoles)) {
    const auto like = std::ranges::find_if(node->children, [&](const Node* child) {
      return child->turn == nullptr && is_like(*child, unit);
    });
    if (like != node->children.end()) {
      node = *like;
      continue;
    }
    node = &add(node);
    node->whole = unit.whole;
    node->is_assistant = unit.is_assistant;
  }
  Node& leaf = add(node);
  MessageUnit said = units_of(json::array{reply}, Joining::kAllRoles).front();
  leaf.whole = said.whole;
  leaf.calls = said.calls;
  leaf.thoughts = said.thoughts;
  leaf.is_assistant = true;
  leaf.turn = &turn;
  leaf.call_ids = std::move(said.call_ids);
  leaf.said = {said.words};
  for (const std::string& text : also_said) leaf.said.push_back(words_of(text));
  return leaf;
}

void TurnHistory::forget(Node& node) {
  if (!node.children.empty()) return;
  node.is_forgotten = true;
  std::erase(node.parent->children, &node);
}

}  // namespace slime::engine
