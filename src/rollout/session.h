#pragma once

/// Groups in flight: each sample is sampled and scored in a coroutine of its own, all of them on the
/// rollout's thread. A session says what happens and decides nothing; a step of training (step.h)
/// and an evaluation (eval_batch.h) are built on it. Several sessions share thread and engine and
/// do not touch each other's requests.

#include <atomic>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <exception>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "core/expected.h"
#include "core/sample.h"
#include "engine/client.h"
#include "rollout/engine_requests.h"
#include "rollout/first_failures.h"
#include "rollout/response_rules.h"
#include "rollout/reward_call.h"
#include "rollout/rollout.h"
#include "rollout/runtime.h"

namespace slime::rollout {

/// What all sessions of a rollout are given. All of it outlives them, the runtime also because a
/// reward that nobody waits for any more goes on alone until it notices.
struct RolloutContext {
  engine::EngineClient& engine;
  const RolloutConfig& config;
  const RolloutHooks& hooks;
  Runtime& runtime;
  FirstFailures& first_failures;  // of training, not of evaluations
};

/// Key of the random numbers of a sample.
uint64_t draw_key(uint64_t seed, int64_t ordinal);
/// The same in every epoch: of a prompt and a place in its group.
uint64_t draw_key(uint64_t seed, std::span<const TokenId> prompt, int64_t index_in_group);

/// One sample of a group in flight.
struct Draw {
  bool asks_engine = false;   // there is something to draw, by the engine or by a function
  int64_t tokens_before = 0;  // of the response, from earlier steps
  Status sampled_status = Status::kPending;  // when it had ended, before the reward
  /// Why the engine gave it up, unless the session had asked for that.
  std::optional<std::string> engine_gave_up;
  std::optional<EngineRequests::UnderWay> under_way;
  std::stop_source call;            // of a function that draws it
  bool is_list = false;             // the function returned a list of samples
  std::vector<Sample> other_parts;  // that a function made beside the sample, until all are scored
  // Written by the engine's thread, read by the session's.
  std::atomic<int64_t> num_sampled{0};  // new tokens, while it has not ended
  /// How many new tokens the session's thread waits for, so that virtual time can move on; the
  /// largest number: for none. That thread sets it. The engine's, once as many are sampled, takes it
  /// back and tells.
  std::atomic<int64_t> awaited{std::numeric_limits<int64_t>::max()};
};

struct GroupInFlight {
  GroupInFlight(Group started, int64_t attempt_in)
      : group(std::move(started)), attempt(attempt_in), draws(group.samples.size()) {}
  /// Once all is sampled, and scored but for what is scored as a group, the parts that a function made
  /// of a sample stand behind all n.
  Group group;
  /// Where functions draw: as it was begun. They may change anything in a sample.
  std::optional<Group> begun;
  int64_t attempt = 0;       // how often it was given out before: part of its requests' rids
  std::vector<Draw> draws;   // one per sample
  std::size_t num_open = 0;  // samples that are not sampled and scored
  std::optional<FilterVerdict> filtered;  // the answer of a user's filter
  bool is_aborted = false;                // Session::abort(): its samples do not go on

  /// Why the engine, or a function, gave up sample `index` of the group.
  std::string why_given_up(std::size_t index) const;
  /// What is handed back: with the tokens that its samples have, or without.
  Group to_hand_back(bool keeps_tokens);
  /// The parts that functions made of samples stand behind all n from now on.
  void gather_parts();
};

/// Created, used and destroyed on the thread that runs the context of `runtime`. One class because what a
/// sample may do next (be sampled, go on behind an interruption, be scored, end) and whether anything is
/// left to wait for follow from the same counts.
class Session {
 public:
  /// What on_sampled, on_done and on_reached throw ends the session; on_idle throws nothing. Empty
  /// ones are left out.
  struct Events {
    std::function<void(GroupInFlight&, std::size_t index)>
        on_sampled;                               // the engine is done with it
    std::function<void(GroupInFlight&)> on_done;  // all sampled and scored
    std::function<void()> on_reached;             // a Draw has as many tokens as were awaited
    /// Nothing is in flight, and nothing refers to the session: it may be destroyed in this call.
    /// Comes after begin() and again after each start() and close() that follow.
    std::function<void()> on_idle;
  };

  /// `name` is the beginning of the rids of its requests, and no other session's that lives.
  Session(const RolloutContext& context, ResponseRules rules, std::string name);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  void set_events(Events events) { events_ = std::move(events); }

  /// Starts a group. on_sampled comes for the samples that ask the engine, on_done for every group;
  /// neither before this returns, nor before begin().
  std::shared_ptr<GroupInFlight> start(Group group, int64_t attempt = 0);

  /// The groups started so far go to the engine. `as_one_batch`: it sees as many as may be in it at
  /// once together, because it is paused while they are submitted, so that a run repeats. Called
  /// once.
  void begin(bool as_one_batch = true);

  /// Nobody waits for anything any more: no sample starts, those in the engine are aborted and come
  /// back as they are, rewards that are not there yet are told to stop and stay away.
  /// When the engine does not take an abort, error() says so. Throws nothing.
  /// Functions that draw samples are stopped too; in a partial rollout they get some time to return
  /// what they have.
  void close();
  /// Nobody waits for functions that come to an end.
  void stop_functions() { functions_stop_.request_stop(); }

  /// `on_quiet` is called once, when all samples are sampled.
  void drain(std::function<void()> on_quiet);
  /// What is in the engine is aborted; nothing is submitted until release(), after which all go on
  /// from their tokens. `on_quiet` is called once, when nothing of this session is in the engine.
  /// Throws nothing: fails the session.
  void interrupt(std::function<void()> on_quiet);
  void release() { requests_.release(); }

  /// Its samples that are not sampled end as they are (kAborted), and on_done comes.
  void abort(GroupInFlight& flight);

  /// A copy with the tokens that are sampled at this moment; what is under way can be continued.
  Group as_it_is(const GroupInFlight& flight) const;

  /// Closes it for this reason, which error() gives; the first one counts. Throws nothing.
  void fail(const std::exception_ptr& error);

  /// on_idle comes (again) if nothing is in flight.
  void tell_when_idle();

  bool is_closed() const { return is_closed_; }
  const std::exception_ptr& error() const { return error_; }
  /// By the engine and by functions that draw; and those that sample hooks put beside them.
  int64_t num_generated_tokens() const { return requests_.num_tokens() + num_tokens_of_functions_; }
  /// Sampled for functions, and trained by none of the samples that they returned.
  int64_t num_lost_tokens() const { return num_lost_tokens_; }

 private:
  boost::asio::awaitable<void> run_sample(std::shared_ptr<GroupInFlight> flight, std::size_t index);
  boost::asio::awaitable<void> draw(std::shared_ptr<GroupInFlight> flight, std::size_t index);
  boost::asio::awaitable<void> score(std::shared_ptr<GroupInFlight> flight, std::size_t index);
  boost::asio::awaitable<void> ask_teacher(Sample& sample);
  boost::asio::awaitable<void> score_one(Sample& sample);
  boost::asio::awaitable<void> score_parts(const AskGroupFn& ask, std::vector<Sample*> parts);
  boost::asio::awaitable<void> ask_sample_hooks(std::shared_ptr<GroupInFlight> flight,
                                                std::size_t index);
  boost::asio::awaitable<void> ask_sample_hook(Sample& sample, int64_t group);
  boost::asio::awaitable<void> end_group(std::shared_ptr<GroupInFlight> flight);
  void take_score(Sample& sample, Expected<Sample> scored) const;
  boost::asio::awaitable<void> draw_by_function(std::shared_ptr<GroupInFlight> flight,
                                                std::size_t index);
  void take_sampled(Sample& sample, Draw& draw, std::vector<Sample> sampled);
  void end_functions();
  void spawn(std::shared_ptr<GroupInFlight> flight);
  void render(Sample& sample) const;
  engine::GenerateRequest request_for(const GroupInFlight& flight, const Sample& sample) const;
  boost::asio::awaitable<bool> draw_once(std::shared_ptr<GroupInFlight> flight, std::size_t index);
  void tell_reached();
  void tell_when_quiet();

  const RolloutContext context_;
  const ResponseRules rules_;
  const std::string name_;
  Events events_;
  EngineRequests requests_;
  std::stop_source rewards_stop_;
  std::stop_source functions_stop_;
  int64_t num_functions_ = 0;  // under way
  int64_t num_tokens_of_functions_ = 0;
  int64_t num_lost_tokens_ = 0;
  bool has_told_functions_ = false;                      // to come to an end
  std::shared_ptr<boost::asio::steady_timer> patience_;  // with them
  std::vector<std::shared_ptr<GroupInFlight>> started_;  // before begin()
  bool has_begun_ = false;
  std::function<void()> on_quiet_;  // of a drain() or interrupt() that has not been answered
  int64_t num_drawing_ = 0;         // samples that have not been sampled to their ends
  int64_t num_running_ = 0;         // samples whose coroutine has not ended
  bool idle_check_is_posted_ = false;
  bool is_closed_ = false;
  std::exception_ptr error_;
};

}  // namespace slime::rollout
