#pragma once

/// Recognition of a session's turns in the messages that a client sends back.
///
/// Messages form a tree, one for each set of tools and template options; a path from its root is a
/// prompt. A turn is the same when its words and calls are (engine/sessions/message_unit.h). Anything else
/// is somebody's message, which begins a branch. A wrong guess costs a fork, never a wrong context:
/// samples are built from tokens (engine/sessions/turn_tree.h).

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/sessions/message_unit.h"

namespace slime::engine {

struct SessionTurn;

class TurnHistory final {
 public:
  /// A message, or a turn. Lives as long as the history.
  struct Node {
    Node* parent = nullptr;
    std::vector<Node*> children;
    TextKey whole, calls, thoughts;  // MessageUnit's
    bool is_assistant = false;
    SessionTurn* turn = nullptr;  // null: somebody else's message
    std::vector<TextKey> said;    // of a turn: the words that it may come back with
    std::vector<std::string> call_ids;
    bool is_forgotten = false;
  };

  /// The last turn in a conversation, behind exactly the messages before it.
  struct Found {
    Node* node = nullptr;
    MessageUnit unit;  // where the client says it
    /// Turns up to and with it, each with its messages.
    std::vector<std::pair<SessionTurn*, MessageUnit>> turns;
  };

  /// `offer`: of the tools and the options of the template.
  std::optional<Found> find(const json::array& messages, const TextKey& offer) const;

  /// A turn behind `messages`, whose message is `reply`, an assistant's. `also_said`: further texts that it
  /// may come back with. `found`: what find() said of the messages.
  Node& record(SessionTurn& turn, const json::array& messages, const TextKey& offer,
               const std::optional<Found>& found, const json::object& reply,
               const std::vector<std::string>& also_said);

  /// Takes a turn back, where nothing goes on from it.
  void forget(Node& node);

  std::size_t num_nodes() const { return nodes_.size(); }

 private:
  Node& add(Node* parent);

  std::vector<std::unique_ptr<Node>> nodes_;
  std::map<TextKey, Node*> roots_;  // by offer
};

}  // namespace slime::engine
