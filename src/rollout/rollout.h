#pragma once

/// From prompts to scored groups: thousands of concurrent conversations on one thread.
///
/// Once per step the loop calls `run`: groups are taken from the buffer, every sample is generated
/// and scored in a coroutine of its own, finished groups are kept or dropped, until enough are
/// kept; what is still in flight is then aborted and handed back. The rules are spec sections 17.2
/// to 17.5. What the original loses we hand back: surplus groups and the prompts of aborted ones.
///
/// A step is a function of tokens and rewards, not of time: groups are judged in the order of
/// virtual time (rollout/virtual_time.h), and what is handed back has the tokens that it had drawn
/// by the tick in which the step closed; what the engine drew beyond is discarded.
///
/// Everything it waits for has a deadline or is bounded by the engine; a group whose sample failed
/// is dropped with a reason and replaced, and too many failures end the run. Once the step has its
/// groups, rewards that are not there yet are told to stop, and nobody waits for them.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/expected.h"
#include "core/filter_verdict.h"
#include "core/sample.h"
#include "engine/client.h"
#include "rollout/response_rules.h"
#include "rollout/reward_call.h"

namespace slime::rollout {

struct SessionThreads;

struct RolloutConfig {
  int64_t groups_per_step = 0;           // B: how many groups `run` returns
  int64_t groups_per_refill = 0;         // started whenever fewer than B are under way; >= B
  int64_t max_concurrent_samples = 512;  // in the engine, which lets those wait that it cannot run
  /// How many samples draw at once in virtual time: what the engine runs together. More make it
  /// discard tokens, fewer change which groups are kept; neither changes a sample.
  int64_t num_slots = 256;
  bool keeps_partial = false;       // partial rollout: aborted groups keep their tokens
  bool masks_older_tokens = false;  // tokens made before this step are not trained
  std::chrono::duration<double> reward_timeout{30};
  int64_t max_failed_groups = 64;  // in one step; more end the run
  int reward_threads = 1;
};

/// What the loop plugs in. Called on the rollout's thread, except `score`, which runs on reward
/// threads and is to give up waiting when its stop token says so.
struct RolloutHooks {
  std::function<std::vector<Group>(int64_t count)>
      take_groups;                                    // may return fewer at the end of the data
  std::function<void(std::vector<Group>)> give_back;  // groups for a later step
  std::function<std::string(std::span<const TokenId>)> detokenize;
  ScoreFn score;
  std::function<FilterVerdict(const Group&)> filter;                     // empty: keep all
  std::function<void(const Group&, const std::string& reason)> on_drop;  // filtered or failed
  std::function<void(int64_t groups_done, int64_t tokens)> on_progress;  // so far; may be empty
};

struct RolloutResult {
  std::vector<Group> groups;             // sorted by the ordinal of their first sample
  std::map<std::string, int64_t> drops;  // by reason
  int64_t num_failed_groups = 0;
  int64_t generated_tokens = 0;  // all new tokens, kept or not
  int64_t discarded_tokens = 0;  // of those: drawn after the step had closed, or not kept by rule
};

class Rollout {
 public:
  /// References outlive the object.
  Rollout(engine::EngineClient& engine, RolloutConfig config, RolloutHooks hooks);
  /// Waits for rewards that run on after they were told to stop.
  ~Rollout();

  /// One rollout step. Throws ConfigError when samples keep failing, with the last reason, and
  /// OutOfMemory or std::runtime_error when the engine cannot compute; returns early with fewer
  /// groups when `stop` becomes true or the data ends.
  RolloutResult run(const ResponseRules& rules, const std::atomic<bool>& stop);

  /// Generates and scores exactly these groups, without filter and refill: evaluation. A failed
  /// sample stays in its group with Status::kFailed.
  std::vector<Group> evaluate(std::vector<Group> groups, const ResponseRules& rules,
                              const std::atomic<bool>& stop);

 private:
  engine::EngineClient& engine_;
  const RolloutConfig config_;
  const RolloutHooks hooks_;
  const std::unique_ptr<SessionThreads> threads_;
};

}  // namespace slime::rollout
