#pragma once

/// Groups in flight: each sample is drawn and scored in a coroutine of its own, all of them on the
/// thread that calls work(). A session says what happens and decides nothing; a step of training
/// and an evaluation are built on it (rollout.cpp).

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <cstdint>
#include <exception>
#include <functional>
#include <limits>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "core/sample.h"
#include "engine/client.h"
#include "rollout/concurrency_limit.h"
#include "rollout/response_rules.h"
#include "rollout/rollout.h"

namespace slime::rollout {

/// What sessions run on, one after the other. It outlives them: a reward that nobody waits for any
/// more goes on alone on its thread until it notices, and a session does not wait for that.
struct SessionThreads {
  explicit SessionThreads(int num_reward_threads)
      : rewards(static_cast<std::size_t>(num_reward_threads)) {}
  ~SessionThreads() { rewards.stop(); }

  boost::asio::io_context context{1};
  boost::asio::thread_pool rewards;  // after the context, to which it posts: it ends first
};

/// One sample of a group in flight.
struct Draw {
  bool asks_engine = false;                // there is something to draw
  int64_t tokens_before = 0;               // of the response, from earlier steps
  Status drawn_status = Status::kPending;  // when it had ended, before the reward
  // Written by the engine's thread, read by the session's.
  std::atomic<int64_t> num_drawn{0};  // new tokens, while it has not ended
  // Set by the session's thread, which is told once as many tokens are drawn.
  std::atomic<int64_t> awaited{std::numeric_limits<int64_t>::max()};
};

struct GroupInFlight {
  explicit GroupInFlight(Group started) : group(std::move(started)), draws(group.samples.size()) {}
  Group group;
  std::vector<Draw> draws;   // one per sample
  std::size_t num_open = 0;  // samples that are not drawn and scored
};

class Session {
 public:
  /// All are called on the session's thread, and what they throw ends the session. Empty ones are
  /// left out.
  struct Events {
    std::function<void(GroupInFlight&, std::size_t index)> on_drawn;  // the engine is done with it
    std::function<void(GroupInFlight&)> on_done;                      // all drawn and scored
    std::function<void()> on_reached;  // a Draw has as many tokens as were awaited
  };

  /// References outlive the session.
  Session(engine::EngineClient& engine, const RolloutConfig& config, const RolloutHooks& hooks,
          const ResponseRules& rules, const std::atomic<bool>& stop, SessionThreads& threads);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  void set_events(Events events) { events_ = std::move(events); }

  /// Starts a group. on_drawn comes for the samples that ask the engine, on_done for every group;
  /// neither before this returns.
  std::shared_ptr<GroupInFlight> start(Group group);

  /// Runs until nothing is in flight, or throws what ended it. The engine sees the first wave of
  /// requests as one batch: it is paused while they are submitted, so that a run repeats.
  void work();

  /// Nobody waits for anything any more: no sample starts, those in the engine come back as they
  /// are, rewards that are not there yet are told to stop and stay away.
  void close();

  bool is_closed() const { return is_closed_; }
  int64_t num_generated_tokens() const { return num_generated_tokens_; }

 private:
  boost::asio::awaitable<void> run_sample(std::shared_ptr<GroupInFlight> flight, std::size_t index);
  boost::asio::awaitable<void> draw(std::shared_ptr<GroupInFlight> flight, std::size_t index);
  boost::asio::awaitable<void> score(std::shared_ptr<GroupInFlight> flight, std::size_t index);
  void spawn(std::shared_ptr<GroupInFlight> flight);
  void render(Sample& sample) const;
  /// work() throws the first of these once everything has come back.
  void fail(const std::exception_ptr& error);
  void tell_reached();
  void watch_for_stop();

  engine::EngineClient& engine_;
  const RolloutConfig& config_;
  const RolloutHooks& hooks_;
  const ResponseRules& rules_;
  const std::atomic<bool>& stop_;
  SessionThreads& threads_;
  Events events_;
  ConcurrencyLimit limit_;
  std::stop_source rewards_stop_;
  std::vector<std::shared_ptr<GroupInFlight>> started_;  // before work()
  bool is_working_ = false;
  boost::asio::steady_timer* stop_alarm_ = nullptr;
  int64_t num_open_groups_ = 0;
  int64_t num_generated_tokens_ = 0;
  bool is_closed_ = false;
  std::exception_ptr error_;
};

}  // namespace slime::rollout
