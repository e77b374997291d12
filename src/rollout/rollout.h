#pragma once

/// Rollout, from prompts to scored groups: thousands of concurrent conversations on one thread, which lives
/// as long as the run.
///
/// The loop opens a step with a message; groups are then taken from the buffer, every sample is
/// generated and scored in a coroutine of its own, finished groups are kept or dropped, until
/// enough are kept. Kept groups leave one by one through a bounded queue, in the order in which
/// they were judged; the record of the step's end follows them in the same queue. What is in flight
/// when the step closes is aborted and handed back. The rules are spec sections 17.2 to 17.5. What
/// the original loses we hand back: surplus groups and the prompts of aborted ones.
///
/// A step is a function of tokens and rewards, not of time: groups are judged in the order of
/// virtual time (rollout/virtual_time.h), and what is handed back has the tokens that it had sampled
/// by the tick in which the step closed; what the engine drew beyond is discarded.
///
/// Everything it waits for has a deadline or is bounded by the engine; a group whose sample failed
/// is dropped with a reason and replaced, one that the engine gave up is handed back and replaced,
/// and too many of both end the run. Once the step has its
/// groups, rewards that are not there yet are told to stop, and nobody waits for them. While the
/// queue is full no group is judged; nothing else waits for that.
///
/// docs/decisions/0075-long-lived-rollout.md.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "core/expected.h"
#include "core/sample.h"
#include "core/stop_flags.h"
#include "engine/client.h"
#include "rollout/answer.h"
#include "rollout/group_filter.h"
#include "rollout/prompt_supply.h"
#include "rollout/response_rules.h"
#include "rollout/scorer.h"
#include "rollout/staleness.h"

namespace slime::rollout {

struct RolloutConfig {
  int64_t groups_per_step = 0;           // B: how many groups a step gives
  int64_t groups_per_refill = 0;         // started whenever fewer than B are under way; >= B
  int64_t max_concurrent_samples = 512;  // in the engine, which lets those wait that it cannot run
  /// How many samples draw at once in virtual time: what the engine runs together. More make it
  /// discard tokens, fewer change which groups are kept; neither changes a sample.
  int64_t num_slots = 256;
  bool keeps_partial = false;  // partial rollout: aborted groups keep their tokens
  /// With it: as a group ends another one is begun, so that groups_per_refill are open to the end of
  /// the step and places of the engine do not stand empty there.
  bool refills_at_once = false;
  /// Of a stream: a group that comes from a checkpoint with samples that have not ended is sampled anew from
  /// its prompt; otherwise each of them goes on from its tokens.
  bool redraws_unended_groups = false;
  std::chrono::duration<double> reward_timeout{30};
  int64_t max_failed_groups = 64;   // in one step; more end the run when they are also
  double max_failed_share = 0;      // a larger share of the groups of the step that ended
  int64_t max_filtered_groups = 0;  // in one step, by the filter; more end the run; 0: no limit
  int reward_threads = 1;
  /// Partial rollout with a GenerateFn: so long a step's end waits for functions that are to return
  /// what they have.
  std::chrono::duration<double> abort_patience{10};
  /// Of a stream, begun and not judged; 0: as many as its bound on age allows.
  int64_t max_open_groups = 0;
  /// Finished groups that may wait for the loop. More would be older when they are trained, fewer
  /// than B would make generation wait while the loop trains on the B before.
  int64_t max_waiting_groups = 64;
};

/// What keeps a stream from judging and beginning groups.
enum class HeldBy {
  kNothing,
  kFullQueue,  // --async-buffer-size: finished groups wait for the loop
  kUpdate,     // hold(), until release()
  kStateLock,  // somebody reads buffer and ledger
};

/// A sample for a sample hook.
struct SampleInHook {
  Sample sample;
  bool is_evaluation = false;
};

/// Sees a sample between its last token and its reward.
using AskSampleHookFn = std::function<void(SampleInHook, std::stop_token, AnswerFn<Sample>)>;

/// The parts of a rollout that its owner provides. Called on the rollout's thread, except where a
/// part says otherwise.
struct RolloutHooks {
  PromptSupply* prompts = nullptr;  // of steps and streams; outlives the rollout
  Scorer scorer;
  GroupFilter filter;
  std::function<std::string(std::span<const TokenId>)> detokenize;
  AskSampleHookFn ask_sample_hook;  // may be empty
  /// With rules that have a GenerateFn: functions under way are to come to an end with what they
  /// have (true), or may begin and go on again (false). Empty: they cannot be told.
  std::function<void(bool)> abort_functions;
  std::function<void(int64_t groups_done, int64_t tokens)> on_progress;  // so far; may be empty
  /// Of a stream: this many groups are begun and not judged, and this keeps it from going on. May be
  /// empty.
  std::function<void(HeldBy, int64_t num_under_way)> on_stream;
};

/// What a step is taken with.
struct StepOrder {
  int64_t step = 0;
  ResponseRules rules;
  WeightVersion version = 0;  // of the weights that new tokens come from
  StopFlags stop = {};        // end it early
};

enum class ConsumptionOrder {
  kDispatch,  // groups are trained in the order in which they were begun
  kFinish,    // those that finish first are trained first
};

/// What a stream is opened with: steps without pauses between them.
struct StreamOrder {
  Staleness staleness;    // its groups_per_step is that of RolloutConfig
  int64_t num_steps = 0;  // of the whole run: groups for steps [staleness.first_step, num_steps)
  ResponseRules rules;
  ConsumptionOrder order = ConsumptionOrder::kDispatch;
  StopFlags stop = {};  // end it early
};

/// The last record of a step.
struct StepEnd {
  int64_t step = 0;
  WeightVersion version = 0;             // of the engine's weights when it was begun
  std::map<std::string, int64_t> drops;  // by reason
  int64_t num_failed_groups = 0;         // dropped, or given up by the engine and handed back
  int64_t generated_tokens = 0;          // all new tokens, kept or not
  int64_t discarded_tokens = 0;  // of those: sampled after the step had closed, or not kept by rule
  int64_t lost_tokens = 0;       // sampled for functions, and trained by none of their samples
  int64_t num_retried_groups = 0;  // too old: sampled again from the prompt
  /// Of a stream: samples of groups that were dropped or are sampled again, and the tokens that they had.
  int64_t num_dropped_samples = 0;
  int64_t dropped_sample_tokens = 0;
  bool is_last = false;      // of a stream that ended early: by its stop flag, or with the data
  std::exception_ptr error;  // the step failed, and its groups are incomplete
};

using StepRecord = std::variant<Group, StepEnd>;

class Driver;

/// Hears of a group as soon as it is generated and scored. On the rollout's thread.
using OnGroupFn = std::function<void(const Group&)>;

/// All that is under way, at one moment.
struct Snapshot {
  std::vector<Group> open_groups;
  int64_t generated_tokens = 0;
};

/// All functions are called by one thread, the loop's.
class Rollout {
 public:
  /// References outlive the object. With a driver (rollout/runtime.h) it has no threads: whoever
  /// waits here drives it.
  Rollout(engine::EngineClient& engine, RolloutConfig config, RolloutHooks hooks,
          Driver* driver = nullptr);
  /// What is in flight is aborted, and told to nobody. Waits for rewards that run on after they
  /// were told to stop.
  ~Rollout();

  /// Lets a step begin and returns at once. One step is open at a time: until next() has given its
  /// end.
  void open_step(StepOrder order);

  /// Lets steps begin one after the other, without waiting for the loop more than the bound on
  /// staleness says. It is open until the record of its last step's end, or of one with an error.
  /// The rollout's thread owns buffer and ledger as long: see StateLock.
  void open_stream(StreamOrder order);

  /// Waits for the next record of the open step or stream: a kept group, or the end of a step.
  /// Behind the end of a stream that ended early come ends of steps without groups.
  StepRecord next();
  /// The same; empty once one of `gives_up` is set, and nothing was taken.
  std::optional<StepRecord> next(const StopFlags& gives_up);

  // While a stream is open. Each waits until the rollout's thread has done it.

  /// No group is begun until release(). Waits until nothing is in the engine: all groups that were
  /// begun are sampled to their ends, or (`interrupts`) aborted, to go on from their tokens later.
  void hold(bool interrupts);
  /// The engine has these weights; goes on after a hold().
  void release(WeightVersion version);

  /// As long as it lives the rollout's thread stands still between two events, and buffer and
  /// ledger belong to the thread of the loop. What runs in the engine runs on.
  class [[nodiscard]] StateLock {
   public:
    explicit StateLock(Rollout& rollout);
    ~StateLock();
    StateLock(const StateLock&) = delete;
    StateLock& operator=(const StateLock&) = delete;

    /// Groups that were begun and are neither taken by next() nor dropped, oldest first, each
    /// sample with the tokens that it has now. Beside them all tokens that the engine drew for
    /// steps and streams of this rollout until now, those under way included.
    Snapshot snapshot() const;

   private:
    Rollout& rollout_;
    std::promise<void> returned_;
  };

  /// Generates and scores exactly these groups, without filter and refill: evaluation. A failed
  /// sample, or one that the engine gave up, stays in its group with Status::kFailed. Returns early, with unfinished samples
  /// aborted, when `stop` becomes true. Waits; an open step goes on beside it. Throws like
  /// take_step. `on_group` hears of none that was broken off.
  std::vector<Group> evaluate(std::vector<Group> groups, const ResponseRules& rules,
                              const std::atomic<bool>& stop, OnGroupFn on_group = {});

  /// Groups that are kept and wait for next().
  int64_t num_waiting_groups() const;

 private:
  class Thread;
  StepRecord seen(StepRecord record);
  const std::unique_ptr<Thread> thread_;
  enum class Open { kNothing, kStep, kStream, kEndedStream } open_ = Open::kNothing;
  int64_t last_step_ = -1;  // of the open stream
};

struct StepResult {
  std::vector<Group> groups;  // sorted by ordinal
  StepEnd end;                // without error
  bool is_given_up = false;   // the step has not ended: groups are those that came so far
};

/// Waits for the whole of the open step. Throws ConfigError when samples kept failing, with the
/// last reason, OutOfMemory or std::runtime_error when the engine could not compute, and what hooks
/// threw; gives fewer groups when the step was stopped or the data ended.
StepResult take_step(Rollout& rollout);
/// The same; `result` has the groups that came also when it throws. Once `gives_up` it has those that came
/// so far, and the step goes on.
void take_step(Rollout& rollout, const StopFlags& gives_up, StepResult& result);

}  // namespace slime::rollout
