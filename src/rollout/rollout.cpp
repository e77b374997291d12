#include "rollout/rollout.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <future>
#include <list>
#include <utility>

#include "core/error.h"
#include "rollout/eval_batch.h"
#include "rollout/runtime.h"
#include "rollout/session.h"
#include "rollout/step.h"
#include "rollout/step_record_queue.h"
#include "rollout/stream.h"

namespace slime::rollout {

namespace asio = boost::asio;

namespace {

constexpr std::chrono::milliseconds kStopFlagInterval{100};

}  // namespace

/// The thread and what lives on it. Messages to it are handlers of its context; what it says leaves
/// through the queue, and evaluations through their promises. One class because its members live
/// and die in one order with the thread that alone may touch them.
class Rollout::Thread {
 public:
  Thread(engine::EngineClient& engine, RolloutConfig config, RolloutHooks hooks, Driver* driver)
      : config_(config),
        hooks_(std::move(hooks)),
        records_(static_cast<std::size_t>(std::max<int64_t>(config.max_waiting_groups, 1))),
        runtime_(config.reward_threads, driver),
        context_{engine, config_, hooks_, runtime_, first_failures_},
        next_look_(runtime_.context()) {
    runtime_.begin(
        {.on_exception = [this] { failed(); }, .on_turn = [this] { look_at_stop_flags(); }});
  }

  ~Thread() {
    if (runtime_.is_driven()) {
      end();  // its owner may be about to stop driving it: nothing is decided any more
    } else {
      asio::post(runtime_.context(), [this] { end(); });
    }
    runtime_.end();
  }
  Thread(const Thread&) = delete;
  Thread& operator=(const Thread&) = delete;

  // From the loop's thread.

  void open_step(StepOrder order) {
    asio::post(runtime_.context(), [this, order = std::move(order)]() mutable {
      check(step_ == nullptr, "one step is open at a time");
      step_ = std::make_unique<Step>(context_, records_, attempts_, std::move(order), [this] {
        generated_tokens_ += step_->num_generated_tokens();
        step_.reset();
      });
      step_->begin();
      look_at_stop_flags();
    });
  }

  void open_stream(StreamOrder order) {
    asio::post(runtime_.context(), [this, order = std::move(order)]() mutable {
      check(step_ == nullptr && stream_ == nullptr, "one step or stream is open at a time");
      stream_ = std::make_unique<Stream>(context_, records_, attempts_, std::move(order), [this] {
        generated_tokens_ += stream_->num_generated_tokens();
        stream_.reset();
      });
      stream_->begin();
      look_at_stop_flags();
    });
  }

  StepRecord next() {
    runtime_.wait_until([this] { return records_.has_answer(); });
    std::optional<StepRecord> record = records_.take();
    if (!record) std::rethrow_exception(failure_);  // written before the queue was closed
    asio::post(runtime_.context(), [this] {
      records_.refill();
      if (step_ != nullptr) step_->go_on();
      if (stream_ != nullptr) stream_->go_on();
    });
    return std::move(*record);
  }

  std::optional<StepRecord> next(const StopFlags& gives_up) {
    runtime_.wait_until([&] { return records_.has_answer() || gives_up.load(); });
    while (!records_.has_answer_within(kStopFlagInterval))
      if (gives_up.load()) return std::nullopt;
    return next();
  }

  void hold(bool interrupts) {
    auto quiet = std::make_shared<std::promise<void>>();
    std::future<void> is_quiet = quiet->get_future();
    asio::post(runtime_.context(), [this, interrupts, quiet] {
      if (stream_ == nullptr) return quiet->set_value();  // it has given all that was asked of it
      stream_->hold(interrupts, [quiet] { quiet->set_value(); });
    });
    runtime_.get(std::move(is_quiet));
  }

  void release(WeightVersion version) {
    asio::post(runtime_.context(), [this, version] {
      if (stream_ != nullptr) stream_->release(version);
    });
  }

  /// Stands still from when this returns until `returned` is ready.
  void lock_state(std::future<void> returned) {
    if (runtime_.is_driven()) return;  // it stands still unless somebody waits
    std::promise<void> locked;
    std::future<void> is_locked = locked.get_future();
    asio::post(runtime_.context(), [this, &locked, returned = std::move(returned)] {
      if (stream_ != nullptr) stream_->hold_for_lock();
      locked.set_value();
      returned.wait();
      if (stream_ != nullptr) stream_->go_on();
    });
    is_locked.get();
  }

  int64_t num_waiting_groups() const { return records_.num_groups(); }

  /// While it stands still.
  Snapshot snapshot() {
    Snapshot all{.open_groups = records_.waiting_groups(), .generated_tokens = generated_tokens_};
    if (stream_ == nullptr) return all;
    Snapshot under_way = stream_->snapshot();
    std::ranges::move(under_way.open_groups, std::back_inserter(all.open_groups));
    all.generated_tokens += under_way.generated_tokens;
    return all;
  }

  std::vector<Group> evaluate(std::vector<Group> groups, const ResponseRules& rules,
                              const std::atomic<bool>& stop, OnGroupFn on_group) {
    std::promise<std::vector<Group>> finished;
    std::future<std::vector<Group>> result = finished.get_future();
    asio::post(runtime_.context(), [this, groups = std::move(groups), rules, &stop,
                                    on_group = std::move(on_group),
                                    finished = std::move(finished)]() mutable {
      const auto where = evaluations_.emplace(evaluations_.end());
      *where = std::make_unique<EvalBatch>(
          context_, fmt::format("eval{}", num_evaluations_++), std::move(rules), stop,
          std::move(on_group), std::move(finished), [this, where] { evaluations_.erase(where); });
      (*where)->begin(std::move(groups));
      look_at_stop_flags();
    });
    return runtime_.get(std::move(result));
  }

 private:
  /// A bug: what can go wrong in a step or an evaluation is told there. All of it comes back.
  void failed() {
    if (!failure_) failure_ = std::current_exception();
    records_.close();
    end();
  }

  /// Ten times a second while something is in flight; driven, before each turn.
  void look_at_stop_flags() {
    if (step_ != nullptr) step_->look_at_stop_flag();
    if (stream_ != nullptr) stream_->look_at_stop_flag();
    for (const auto& evaluation : evaluations_) evaluation->look_at_stop_flag();
    const bool is_empty = step_ == nullptr && stream_ == nullptr && evaluations_.empty();
    if (runtime_.is_driven() || is_looking_ || is_ending_ || is_empty) return;
    is_looking_ = true;
    next_look_.expires_after(kStopFlagInterval);
    next_look_.async_wait([this](const boost::system::error_code&) {
      is_looking_ = false;
      look_at_stop_flags();
    });
  }

  /// The context has nothing to do, and the thread ends, once all of it has come back.
  void end() {
    is_ending_ = true;
    next_look_.cancel();
    if (step_ != nullptr) step_->abandon();
    if (stream_ != nullptr) stream_->abandon();
    for (const auto& evaluation : evaluations_) evaluation->abandon();
  }

  const RolloutConfig config_;
  const RolloutHooks hooks_;
  StepRecordQueue records_;
  Runtime runtime_;
  FirstFailures first_failures_;
  const RolloutContext context_;
  Attempts attempts_;
  std::unique_ptr<Step> step_;
  std::unique_ptr<Stream> stream_;
  int64_t generated_tokens_ = 0;  // of steps and streams that have ended
  std::list<std::unique_ptr<EvalBatch>> evaluations_;
  int64_t num_evaluations_ = 0;
  asio::steady_timer next_look_;
  bool is_looking_ = false;  // there will be a next look
  bool is_ending_ = false;
  std::exception_ptr failure_;
};

Rollout::Rollout(engine::EngineClient& engine, RolloutConfig config, RolloutHooks hooks,
                 Driver* driver)
    : thread_(std::make_unique<Thread>(engine, config, std::move(hooks), driver)) {}

Rollout::~Rollout() = default;

void Rollout::open_step(StepOrder order) {
  check(open_ == Open::kNothing, "one step is open at a time");
  open_ = Open::kStep;
  thread_->open_step(std::move(order));
}

void Rollout::open_stream(StreamOrder order) {
  check(open_ == Open::kNothing, "one step or stream is open at a time");
  open_ = Open::kStream;
  last_step_ = order.num_steps - 1;
  thread_->open_stream(std::move(order));
}

void Rollout::hold(bool interrupts) { thread_->hold(interrupts); }

void Rollout::release(WeightVersion version) { thread_->release(version); }

Rollout::StateLock::StateLock(Rollout& rollout) : rollout_(rollout) {
  rollout_.thread_->lock_state(returned_.get_future());
}

Rollout::StateLock::~StateLock() { returned_.set_value(); }

int64_t Rollout::num_waiting_groups() const { return thread_->num_waiting_groups(); }

Snapshot Rollout::StateLock::snapshot() const { return rollout_.thread_->snapshot(); }

StepRecord Rollout::next() {
  check(open_ != Open::kNothing, "records come from a step that is open");
  if (open_ == Open::kEndedStream) return StepEnd{.is_last = true};
  return seen(thread_->next());
}

std::optional<StepRecord> Rollout::next(const StopFlags& gives_up) {
  check(open_ != Open::kNothing, "records come from a step that is open");
  if (open_ == Open::kEndedStream || !gives_up.may_stop()) return next();
  std::optional<StepRecord> record = thread_->next(gives_up);
  if (!record) return std::nullopt;
  return seen(std::move(*record));
}

StepRecord Rollout::seen(StepRecord record) {
  const auto* end = std::get_if<StepEnd>(&record);
  if (end == nullptr) return record;
  if (open_ == Open::kStep || end->step == last_step_) {
    open_ = Open::kNothing;
  } else if (end->is_last) {
    open_ = Open::kEndedStream;
  }
  return record;
}

std::vector<Group> Rollout::evaluate(std::vector<Group> groups, const ResponseRules& rules,
                                     const std::atomic<bool>& stop, OnGroupFn on_group) {
  return thread_->evaluate(std::move(groups), rules, stop, std::move(on_group));
}

void take_step(Rollout& rollout, const StopFlags& gives_up, StepResult& result) {
  while (!result.is_given_up) {
    std::optional<StepRecord> record = rollout.next(gives_up);
    if (!record) {
      result.is_given_up = true;
    } else if (auto* end = std::get_if<StepEnd>(&*record)) {
      if (end->error) std::rethrow_exception(end->error);
      result.end = std::move(*end);
      break;
    } else {
      result.groups.push_back(std::get<Group>(*std::move(record)));
    }
  }
  std::ranges::sort(result.groups, {},
                    [](const Group& group) { return group.samples.front().ordinal; });
}

StepResult take_step(Rollout& rollout) {
  StepResult result;
  take_step(rollout, {}, result);
  return result;
}

}  // namespace slime::rollout
