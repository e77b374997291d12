#pragma once

/// The requests of one session in the engine: at most so many at once, in the order of asking, and
/// known by their handles, so that no other session's or client's is ever aborted with them.
///
/// The first of them go to the engine as one batch: it is paused while they are submitted, so that
/// a run repeats. On the rollout's thread.

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>

#include "core/expected.h"
#include "engine/client.h"
#include "rollout/concurrency_limit.h"
#include "rollout/engine_call.h"
#include "rollout/gate.h"

namespace slime::rollout {

class EngineRequests {
 public:
  /// `on_failure` is called when the engine cannot be resumed after the first wave. References
  /// outlive the object.
  EngineRequests(engine::EngineClient& engine, boost::asio::io_context& context,
                 int64_t max_in_flight, std::function<void(const Error&)> on_failure);

  /// `num_draws` calls of draw() follow at once; as many as may be in flight are the first wave.
  Expected<void> begin_first_wave(int64_t num_draws);

  /// One of those that may be in flight; waits for its turn.
  boost::asio::awaitable<ConcurrencyLimit::Permit> acquire() { return limit_.acquire(); }

  /// A request in the engine.
  struct UnderWay {
    engine::RequestHandle handle{};
    std::shared_ptr<SampledSoFar> sampled;
  };

  /// With a permit: submits what `make_request` gives, behind an interruption if there is one, and
  /// waits for all of the response. Nothing: closed before it was submitted, or not wanted any
  /// more (`make_request` gives nothing). `under_way` is set
  /// meanwhile. `on_sampled`: engine_call.h.
  boost::asio::awaitable<std::optional<engine::GenerateUpdate>> draw(
      std::function<std::optional<engine::GenerateRequest>()> make_request,
      std::optional<UnderWay>& under_way, OnSampled on_sampled);

  /// Ends it with what it has.
  Expected<void> abort(const UnderWay& request) { return engine_.abort(request.handle); }

  /// What is in flight is aborted, and nothing is submitted until release().
  Expected<void> interrupt();
  void release() { gate_.open(); }
  bool is_interrupted() const { return !gate_.is_open(); }
  bool has_in_flight() const { return !in_flight_.empty(); }

  /// Nothing is submitted any more, what is in flight is aborted, and the engine is not left
  /// paused. After a call that fails the others are made all the same: a request that nobody aborts
  /// draws to its end, and one in a paused engine waits for ever. The first failure is returned.
  Expected<void> close();

  /// New tokens of all requests that have ended.
  int64_t num_tokens() const { return num_tokens_; }

 private:
  /// One of the first wave is about to be submitted; the engine goes on after the last.
  void note_submission();
  /// If this object has paused it.
  Expected<void> resume_engine();
  /// All of them, also after one that fails; the first failure is returned.
  Expected<void> abort_in_flight();

  engine::EngineClient& engine_;
  boost::asio::io_context& context_;
  const int64_t max_in_flight_;
  const std::function<void(const Error&)> on_failure_;
  ConcurrencyLimit limit_;
  Gate gate_;  // closed from interrupt() to release()
  std::set<engine::RequestHandle> in_flight_;
  int64_t first_wave_left_ = 0;  // above 0: the engine is paused until so many are submitted
  bool has_paused_engine_ = false;
  bool is_closed_ = false;
  int64_t num_tokens_ = 0;
};

}  // namespace slime::rollout
