#pragma once

/// Session of an agent: its turns, exactly as the engine sampled them, its limits and defaults.
///
/// One agent, or several that share a name, ask in it through any protocol and at the same time.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/json.h"
#include "engine/http/served_model.h"
#include "engine/sessions/turn_history.h"
#include "engine/sessions/turn_tree.h"

namespace slime::engine {

using SessionTime = std::chrono::steady_clock::time_point;

struct SessionOptions {
  SamplingParams sampling_defaults;    // where a request is silent
  bool keeps_top_p_ids = false;        // the nucleus of each token, for the trainer's replay
  bool keeps_top_p_log_probs = false;  // and the sampler's log-probs in it
  int64_t max_new_tokens = 0;          // of a turn, whatever a request says; 0: no limit
  int64_t max_context_tokens = 0;      // of prompt and response; 0: the model's
  int64_t max_turns = 0;               // 0: no limit
  /// False: prompts follow the template where it drops the thoughts of earlier turns, and fork there.
  bool keeps_thoughts = true;
  json::object template_options;          // under those of a request
  std::shared_ptr<const ChatModel> chat;  // with parsers of its own; null: the model's
};

/// Thread-safe. One class because its lock guards both trees of the turns and what is counted of them.
class Session final {
 public:
  /// `all_bytes`: what the turns of all sessions take. `model`, `end_marks` and `all_bytes` outlive the
  /// session.
  Session(std::string name, SessionOptions options, const ServedModel& model,
          const std::vector<std::string>& end_marks, std::atomic<int64_t>& all_bytes);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  const std::string& name() const { return name_; }
  const SessionOptions& options() const { return options_; }
  /// The served model with the session's defaults and context.
  const ServedModel& model() const { return model_; }
  const std::vector<std::string>& end_marks() const { return end_marks_; }
  /// What the rids of its requests begin with.
  const std::string& rid_prefix() const { return rid_prefix_; }

  /// A request begins; false once the session is closed.
  bool enter();
  void leave(SessionTime now);
  /// Refuses what comes from now on.
  void close() { is_closed_ = true; }
  bool is_closed() const { return is_closed_; }
  int num_running() const { return num_running_; }
  SessionTime last_used() const;

  /// Counts a turn; false when all have been had.
  bool take_turn();

  /// A turn that `find` recognised, and a copy of what a prompt behind it needs.
  struct Recognised {
    TurnHistory::Found found;
    std::vector<TokenId> tokens;
    TokenId last_output = 0;
    std::string end_mark;
    std::vector<json::object> messages;  // of found.turns, as they were sent
  };
  /// `with_messages`: Recognised::messages is wanted.
  std::optional<Recognised> find(const json::array& messages, const TextKey& offer,
                                 bool with_messages) const;

  struct Record {
    SessionTurn* turn = nullptr;
    TurnHistory::Node* node = nullptr;  // null: known by its tokens alone
  };
  struct Said {
    const json::array& messages;  // empty: the prompt was given as tokens
    TextKey offer;
    std::vector<std::string> also;  // further texts that the turn may come back with
  };
  /// `turn.context` is the whole prompt.
  Record record(SessionTurn turn, const Said& said, const std::optional<TurnHistory::Found>& found);
  /// What was sampled there is counted by num_forgotten_tokens().
  void forget(const Record& record);
  /// Tokens that were sampled for an answer that nobody reads.
  void lose(int64_t num_tokens) { num_forgotten_tokens_ += num_tokens; }
  int64_t num_forgotten_tokens() const { return num_forgotten_tokens_; }

  /// The agent was refused behind this turn, or, with null, is not refused any more.
  void set_refused_behind(SessionTurn* turn);

  /// Calls `read` with all turns, under the lock.
  template <typename Read>
  void read_turns(const Read& read) const {
    const std::lock_guard lock(mutex_);
    for (const auto& turn : tree_.turns()) {
      if (!turn->is_forgotten) read(*turn, turn.get() == refused_behind_);
    }
  }
  int64_t num_turns() const;
  int64_t num_bytes() const { return num_bytes_; }

 private:
  void count_bytes(int64_t more);

  const std::string name_;
  const SessionOptions options_;
  const ServedModel model_;
  const std::vector<std::string>& end_marks_;
  const std::string rid_prefix_;
  std::atomic<int64_t>& all_bytes_;
  std::atomic<int64_t> num_bytes_{0};
  std::atomic<int64_t> num_forgotten_tokens_{0};
  std::atomic<bool> is_closed_{false};
  std::atomic<int> num_running_{0};

  mutable std::mutex mutex_;
  TurnTree tree_;                          // guarded by mutex_
  TurnHistory history_;                    // idem
  SessionTurn* refused_behind_ = nullptr;  // idem
  int64_t num_taken_ = 0;                  // idem; turns that requests asked for
  SessionTime last_used_;                  // idem
};

}  // namespace slime::engine
