#pragma once

/// The steps of the engine, and the requests that they advance.
///
/// A step is planned (scheduler.h), launched and collected (step_runner.h); what it drew is told to
/// the requests' callers (request_updates.h). On a device with its own clock the next step is
/// launched before the one before it is collected, so two may be in flight. A request with a
/// TokenConstraint takes part in every other one of these, because its mask needs the token before; the
/// others are in each. Masks are found out on other threads (mask_threads.h). Where drafts are likely
/// (engine/drafts/draft_expectation.h), a step is collected before the next one is planned, and callers are told
/// behind its launch, because the device idles until then.
///
/// Owned by the engine's thread; callbacks are called on it. beside_steps() alone is for any thread.

#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "core/clock.h"
#include "core/draft_counts.h"
#include "engine/admission.h"
#include "engine/client.h"
#include "engine/drafts/draft_planner.h"
#include "engine/engine_config.h"
#include "engine/engine_progress.h"
#include "engine/mask_threads.h"
#include "engine/page_pool.h"
#include "engine/prefix_tree.h"
#include "engine/scheduler.h"
#include "engine/state_pool.h"
#include "engine/step_runner.h"
#include "engine/verification_rounds.h"

namespace slime::engine {

/// make_step_runner, unless a test has a device of its own.
using MakeStepRunner =
    std::function<std::unique_ptr<StepRunner>(model::Network&, const StepRunnerConfig&)>;

/// One class because what a step may hold follows from pages, states, prefixes and steps in flight together.
class StepPipeline {
 public:
  /// `config` is complete; all references outlive the object.
  StepPipeline(model::Network& network, const EngineConfig& config, const Clock& clock,
               EngineProgress& progress, const MakeStepRunner& make_runner);
  StepPipeline(const StepPipeline&) = delete;
  StepPipeline& operator=(const StepPipeline&) = delete;

  int64_t max_request_tokens() const { return admission_.max_request_tokens(); }
  at::ScalarType kv_dtype() const { return runner_->kv_dtype(); }

  void admit(Submission submission) { admission_.admit(std::move(submission), scheduler_); }

  /// A step is in flight, or one may begin.
  bool has_work() const;

  /// Plans and launches a step, and publishes the one before it (or this one, when the runner does
  /// not run ahead). Nothing while paused or asleep.
  void step();
  /// Calls `body` while no step is being launched; those in flight run on. Any thread.
  void beside_steps(const std::function<void()>& body) {
    const std::lock_guard lock(launching_);
    body();
  }
  /// Until no step is in flight.
  void drain();
  /// The same for what has to go on after a device error, which ends all requests.
  void drain_or_fail();

  /// Ends all requests: the device failed, and what its steps should have written is not there.
  void fail_all(const std::exception& error);
  /// Ends them where `matches` says so.
  void finish_if(const std::function<bool(const Request&)>& matches, const FinishReason& reason);
  void finish_all(const FinishReason& reason);
  /// Launched steps are forgotten, before the end.
  void forget_launched();

  // Between two steps, that is after drain().

  void pause(PauseMode mode);
  void resume();
  /// False when requests are running.
  bool flush_cache();
  /// Gives the memory of keys and values back.
  void sleep();
  void wake();
  /// StepRunner::checksums_of.
  WeightChecksums checksums_of(model::Weights& weights, bool resets) {
    return runner_->checksums_of(weights, resets);
  }

  /// New weights, copied from `fresh` (StepRunner::copy_weights), or those of `other`
  /// (StepRunner::exchange_network), or, where neither is given, changed in place. Keys and values of
  /// the old ones serve no new request from here on. With a step in flight: requests that keep theirs
  /// go on behind it, and nobody waits for it; otherwise it is drained.
  void change_weights(const FreshWeights& fresh, model::Network* other, RunningRequests running,
                      WeightVersion version, bool stays_paused);
  /// StepRunner::load_elsewhere.
  Expected<void> load_elsewhere(const std::filesystem::path& directory) {
    return runner_->load_elsewhere(directory);
  }
  /// StepRunner::change_elsewhere.
  Expected<void> change_elsewhere(const model::TensorUpdate& update, const model::Weights& changed,
                                  bool begins) {
    return runner_->change_elsewhere(update, changed, begins);
  }
  /// Any thread: StepRunner::wait_for_weights.
  double wait_for_weights() { return runner_->wait_for_weights(); }

  /// Tells the progress what there is now.
  void report(int64_t num_sampled = 0);

 private:
  /// A launched step. A request that ended meanwhile is null: its surplus token is dropped.
  struct StepInFlight {
    struct Part {
      Request* request = nullptr;
      bool completes = false;
      int64_t position = 0;         // of the sampled token in Request::tokens
      int64_t num_scores = 0;       // log-probs of prompt tokens that come with it
      std::vector<TokenId> drafts;  // of the tokens behind the sampled one
      bool is_tentative = false;    // what is drawn waits for verification
      int64_t round = 0;            // Tentative::round
      bool is_foretold = false;     // a draft layer says what may come behind those
      /// Where choices of experts are that the caller has not been told yet: a request that is
      /// retracted while its step is in flight has no pages any more.
      int64_t first_page = 0;
      std::vector<PageId> pages;
    };
    std::vector<Part> parts;  // per chunk
    /// That its rows take, also of requests that end meanwhile.
    std::vector<std::shared_ptr<const LoadedAdapter>> adapters;
    WeightVersion version = 0;  // of the weights that it computes with
    bool is_fast = false;       // its tokens are tentative
    Clock::TimePoint planned;   // from here on; of an engine with drafts
    int64_t decode_rows = 0;    // 0: its seconds say nothing of decode
  };

  /// What a caller is told later.
  struct HeldUpdate {
    Request* request = nullptr;
    std::unique_ptr<Request> ended;  // the same, if it ended
  };

  /// Tells how long a step took that was collected now.
  void note_seconds(const StepInFlight& step);
  bool may_step() const { return !is_paused_ && !is_asleep_; }
  /// Of the next step. With verification a fast one, or one in training arithmetic.
  std::vector<Chunk> plan();
  /// `planned`: when its planning began.
  void launch(std::vector<Chunk> chunks, Clock::TimePoint planned);
  /// Of requests with a constraint: what the step may draw. Those that cannot go on end, and their chunks
  /// are taken out; so are those of which it is not known soon enough, for this step.
  void mask_tokens(std::vector<Chunk>& chunks);
  void begin_mask(Request& request);
  void collect();
  /// `behind`: what was drawn behind each draft. How many tokens the request got.
  int64_t publish(const StepInFlight::Part& part, std::optional<kernels::SampledToken> sampled,
                  std::vector<kernels::SampledToken> behind, WeightVersion version);
  /// Adds the token at `position`, and those behind it as long as drafts were right.
  std::optional<FinishReason> add_tokens(const StepInFlight::Part& part,
                                         kernels::SampledToken sampled,
                                         std::vector<kernels::SampledToken> behind,
                                         WeightVersion version);
  /// What became of the drafts of a step of the request, of which the first `num_kept` were right.
  void count_drafts(Request& request, int64_t num_drafts, int64_t num_kept, bool is_redrawn);
  void finish(Request& request, FinishReason reason);
  /// Tells the caller what there is of the request, or of one that ended; where updates are held, later.
  void tell(Request& request);
  void tell(std::unique_ptr<Request> ended);
  void tell_held();
  /// Tells whom rows before `end` visited, where the caller asked.
  void tell_experts(const StepInFlight::Part& part, int64_t end);

  const Clock& clock_;
  EngineProgress& progress_;
  PagePool pool_;
  StatePool states_;  // none where layers keep no states
  std::unique_ptr<StepRunner> runner_;
  PrefixTree tree_;
  Scheduler scheduler_;
  Admission admission_;
  MaskThreads mask_threads_;
  std::optional<DraftPlanner> drafts_;        // none: no request gets drafts
  std::optional<VerificationRounds> rounds_;  // none: what steps draw is the response
  DraftCounts draft_counts_;
  Clock::TimePoint collected_at_;       // the last step, of an engine with drafts
  std::deque<StepInFlight> in_flight_;  // oldest first; two at most
  std::mutex launching_;                // as long as the runner reads adapters' slots
  WeightVersion version_ = 0;           // of the steps that are launched next
  bool runs_ahead_ = false;             // the runner, when it launched last
  bool holds_updates_ = false;          // between a collection and the launch that waits for it
  std::vector<HeldUpdate> held_;        // at most one of each request
  bool is_paused_ = false;
  bool is_asleep_ = false;
};

}  // namespace slime::engine
