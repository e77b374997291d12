#pragma once

/// The schedule of --deterministic-schedule: the rollout, rewards and time, driven by rounds.
///
/// A round: all samples under way draw their next tokens (rollout/round_engine.h), and rewards that
/// were asked for before it are computed meanwhile. Behind it, when all of both is there, the
/// rollout hears of it in the order in which it had asked; groups are judged and begun; then comes
/// the next round. Nobody's speed has a say. Training takes a number of rounds, which pass beside it
/// and are waited for. docs/how/asynchronous_training.md, "Repeatable".

#include <boost/asio/thread_pool.hpp>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "engine/client.h"
#include "rollout/round_engine.h"
#include "rollout/runtime.h"

namespace slime::rollout {

/// One class because handlers, rounds, rewards and timers have one order, which is what it is for.
/// Used by one thread at a time.
class Rounds final : public Driver {
 public:
  struct Config {
    int64_t tokens_per_round = 64;
    int reward_threads = 1;
    /// When no reward ends for so long, the wait ends with an error: a reward that was left out
    /// because a clock said so would not be repeatable.
    std::chrono::duration<double> patience{300};
  };
  /// `engine` outlives the object.
  Rounds(engine::EngineClient& engine, Config config)
      : config_(config), engine_(engine, config.tokens_per_round) {}

  /// What the rollout that is driven asks for tokens.
  engine::EngineClient& engine() { return engine_; }

  /// So many rounds pass beside `work`, which runs on the caller's thread and leaves the rollout
  /// alone; returns when both are over. Throws what `work` or a wait throws.
  void pass_beside(int64_t num_rounds, const std::function<void()>& work);

  /// Counted, not measured: a tenth of a second a round.
  Clock::TimePoint now() const override { return now_; }
  void at(Clock::TimePoint when, std::function<void()> call) override;
  void score(ScoreJob job) override;
  void attach(std::function<bool()> run_handlers) override;
  void detach() override;
  /// Throws std::runtime_error when rewards do not end, or the engine takes no orders.
  bool advance() override;

 private:
  struct Reward {
    ScoreJob job;
    std::optional<Expected<json::value>> value;  // guarded by mutex_
  };
  using Rewards = std::vector<std::shared_ptr<Reward>>;

  void pass(int64_t num_rounds);
  void run_round();
  bool run_handlers() { return run_handlers_ && run_handlers_(); }
  void settle();
  void tell(const Rewards& rewards);
  bool are_there_within(const Rewards& rewards, std::chrono::milliseconds limit);
  void pass_time();
  bool call_next_timer();

  const Config config_;
  RoundEngine engine_;
  std::function<bool()> run_handlers_;
  Clock::TimePoint now_{};
  std::map<std::pair<Clock::TimePoint, int64_t>, std::function<void()>> timers_;  // and number
  int64_t num_timers_ = 0;
  Rewards rewards_;  // that nobody was told of, in the order of asking
  std::mutex mutex_;
  std::condition_variable reward_ended_;
  int64_t num_rewards_ended_ = 0;                    // guarded by mutex_
  std::optional<boost::asio::thread_pool> threads_;  // from attach() to detach()
};

}  // namespace slime::rollout
