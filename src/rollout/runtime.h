#pragma once

/// Runtime of a rollout: one context whose handlers run in turn, reward threads, and a clock.
///
/// Usually the context has a thread of its own, rewards have threads, and time is the machine's. Or
/// somebody drives it: handlers run, rewards are computed and time passes when whoever waits for
/// the rollout lets them, all on the thread that waits. That is how a simulator decides when
/// anything happens (docs/how/asynchronous_training.md).

#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <stop_token>
#include <thread>

#include "core/clock.h"
#include "core/error.h"
#include "core/expected.h"
#include "core/json.h"
#include "core/sample.h"

namespace slime::rollout {

/// A reward to be computed: first taken(), then score() on the sample, then answer(). Nobody waits
/// for it any more once `stop` is requested. All of it may be called on any thread.
struct ScoreJob {
  Sample sample;
  std::stop_token stop;
  std::function<void()> taken;
  std::function<Expected<json::value>(const Sample&)> score;
  std::function<void(Expected<json::value>)> answer;
};

/// Who drives a rollout. Everything happens on one thread.
class Driver {
 public:
  virtual ~Driver() = default;

  virtual Clock::TimePoint now() const = 0;
  /// `call` is called once it is `when`.
  virtual void at(Clock::TimePoint when, std::function<void()> call) = 0;
  /// Computes a reward, in its own time.
  virtual void score(ScoreJob job) = 0;

  /// `run_handlers` runs what the rollout can do now, and says whether that was anything. It is
  /// called before time passes, until detach().
  virtual void attach(std::function<bool()> run_handlers) = 0;
  /// What the rollout asked for is forgotten, and destroyed before this returns.
  virtual void detach() = 0;

  /// Somebody waits: lets the next thing happen. False: nothing is to come. May throw: the wait
  /// ends with it.
  virtual bool advance() = 0;
};

class Runtime {
 public:
  /// `driver`: null for threads; outlives the object.
  Runtime(int num_reward_threads, Driver* driver);
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  struct Events {
    std::function<void()> on_exception;  // a handler threw it; the others go on
    std::function<void()> on_turn;       // driven: before handlers run
  };
  /// Handlers run from here on. Called once.
  void begin(Events events);
  /// Until the context has nothing to do any more: called after the last handler was posted.
  void end();

  boost::asio::io_context& context() { return context_; }
  bool is_driven() const { return driver_ != nullptr; }

  // On the context.

  Clock::TimePoint now() const;
  /// Who waits on the timer is woken then, or earlier. A timer that is not set never goes off.
  void wake_at(const std::shared_ptr<boost::asio::steady_timer>& timer, Clock::TimePoint when);
  void score(ScoreJob job);
  /// When a reward was last begun with. Any thread.
  std::atomic<Clock::TimePoint> last_taken{};

  // On the thread of the loop, which waits.

  template <typename T>
  T get(std::future<T> result) {
    wait_until([&result] {
      return result.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
    });
    return result.get();
  }
  /// Driven: until `is_there()`. With threads it returns at once, and the caller waits.
  template <typename Condition>
  void wait_until(const Condition& is_there) {
    while (is_driven() && !is_there())
      check(driver_->advance(), "what the loop waits for is under way: this would wait for ever");
  }

 private:
  bool run_ready();
  void run();

  Driver* const driver_;
  Events events_;
  boost::asio::io_context context_{1};
  /// After the context, to which it posts: it ends first. Absent where rewards are the driver's.
  std::optional<boost::asio::thread_pool> rewards_;
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> more_to_come_;
  std::thread thread_;
};

}  // namespace slime::rollout
