#pragma once

/// Handler of the questions that users' functions ask (docs/plugin_protocol.md).
///
/// Scores by a rule are computed on threads of their own, at any time. Prompts belong to the
/// thread that owns the buffer: it answers questions about them in call(), while it waits for a function, and at
/// no other time.

#include <boost/asio/thread_pool.hpp>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>

#include "config/run_config.h"
#include "core/stop_flags.h"
#include "plugin/hosts.h"
#include "plugin/logged_metrics.h"
#include "plugin/questions.h"
#include "reward/reward.h"

namespace slime::plugin {

class QuestionHandler {
 public:
  /// `config` outlives the object.
  explicit QuestionHandler(const config::RunConfig& config);
  /// Waits for scores that are being computed.
  ~QuestionHandler();

  /// Any thread; returns at once.
  void take(Question question, ReplyFn reply);

  /// That functions logged since the last call. Any thread.
  report::Metrics take_logged() { return logged_.take(); }
  /// What functions log while `call` runs.
  report::Metrics logged_by(const std::function<void()>& call) { return logged_.logged_by(call); }

  /// Answers a question about prompts. Throws net::FrameError or ConfigError for one that cannot be.
  using AnswerPrompts = std::function<ReplyValue(const Question&)>;

  /// Calls a function and waits for what it returns, answering questions about prompts meanwhile.
  /// `call` has no `answer`. Empty `prompts`: this one answers none. When `stop` becomes true the
  /// wait ends.
  Expected<Payload> call(Hosts& hosts, Call call, const AnswerPrompts& prompts = nullptr,
                         const StopFlags& stop = {});

 private:
  void score(const Question& question, const ReplyFn& reply) const;

  struct Waiting {
    Question question;
    ReplyFn reply;
  };

  const config::RunConfig& config_;
  LoggedMetrics logged_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Waiting> waiting_;  // about prompts; guarded by mutex_
  int num_answering_ = 0;        // calls that answer such questions; guarded by mutex_
  std::once_flag has_threads_;
  std::unique_ptr<boost::asio::thread_pool> scores_;  // once there is a question for a score
};

}  // namespace slime::plugin
