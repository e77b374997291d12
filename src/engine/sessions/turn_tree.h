#pragma once

/// Turns of a session as a tree of tokens.
///
/// A turn whose prompt begins with all tokens of an earlier one goes on from it; any other begins anew. A
/// path of the tree is a sample, and what paths share is trained in one of them: each sampled token once,
/// behind the tokens that it was sampled behind, whatever the messages say.
///
///   [prompt | turn 1] - [result of a tool | turn 2]     turn 2's context is the result alone
///                    \- [another question | turn 3]     a fork

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/json.h"
#include "engine/client.h"

namespace slime::engine {

/// One output of the engine. Immutable but for what the tree sets, and is_cut_off, which a refusal
/// behind it sets.
struct SessionTurn {
  std::vector<TokenId> context;    // what the engine read behind the parent's tokens
  std::vector<TokenId> output;     // what it sampled, the end of the turn included
  std::vector<float> log_probs;    // of output; without a grammar, where one has bound tokens of it
  std::vector<TokenId> top_p_ids;  // the nuclei of output, end to end; where the session keeps them
  std::vector<int64_t> top_p_counts;  // how many of them per token of output
  std::vector<float>
      top_p_log_probs;          // of top_p_ids among themselves; where the session keeps them
  int64_t num_constrained = 0;  // the last so many of output a grammar has bound
  std::vector<VersionRun> versions;
  FinishReason finish;
  /// Text of the control token that ended it; empty where it was cut off, or ended by a stop string.
  std::string end_mark;
  json::object message;  // as it was sent: content, reasoning_content, tool_calls
  bool is_ill_formed = false;
  bool is_cut_off = false;

  // Set by the tree.
  int64_t id = 0;  // 1, 2, ... in the order of their records
  SessionTurn* parent = nullptr;
  std::vector<SessionTurn*> children;
  int64_t num_before = 0;  // tokens of the parent and all before it
  bool is_forgotten = false;

  int64_t num_prompt_tokens() const { return num_before + static_cast<int64_t>(context.size()); }
  int64_t num_tokens() const { return num_prompt_tokens() + static_cast<int64_t>(output.size()); }
  std::size_t num_bytes() const;
};

class TurnTree final {
 public:
  /// `turn` without its place: its context is the whole prompt, and what it shares with its parent is cut
  /// off here. `recognised`: the turn that the prompt was made behind, or null; of turns with equal
  /// tokens it is the parent, then one that nothing goes on from.
  SessionTurn& add(SessionTurn turn, SessionTurn* recognised);

  /// Takes it back; false when something goes on from it.
  bool forget(SessionTurn& turn);

  /// All tokens up to the end of the turn.
  static std::vector<TokenId> tokens_of(const SessionTurn& turn);

  /// In the order of their records; some may be forgotten.
  std::span<const std::unique_ptr<SessionTurn>> turns() const { return turns_; }

 private:
  SessionTurn* parent_of(std::span<const TokenId> prompt, SessionTurn* recognised) const;

  std::vector<std::unique_ptr<SessionTurn>> turns_;
  std::vector<SessionTurn*> roots_;  // those without a parent
};

}  // namespace slime::engine
