#pragma once

/// Several engines behind one EngineClient.
///
/// A request goes to the engine with the least work: the tokens it holds and those it is expected
/// to draw. A beginning of the prompt that an engine has computed counts in its favour, so the
/// samples of a group and the turns of a conversation stay together as long as that costs little
/// balance. What waits in one engine moves to one that has room; what runs stays.
///
/// An engine may be lost, leave or join at any time. A request that it had goes on in another one
/// from the tokens that were told, and its caller sees one response: each token once, one last
/// update, the versions and log-probs of whoever drew it. Stop strings, penalties and the random
/// numbers go on across the seam (GenerateRequest::num_sampled, sampling_seed). Requests for which
/// there is no engine wait for one.

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "core/clock.h"
#include "engine/client.h"
#include "router/prefix_map.h"
#include "router/routed_request.h"

namespace slime::router {

struct RouterConfig {
  int64_t max_waiting = 65536;  // requests without an engine; more are refused (kQueueFull)
  /// So many engines in a row are lost while they have a request and draw nothing for it, before
  /// it is taken for the cause and fails.
  int64_t max_losses = 5;
  uint64_t seed = 0;                          // of requests without a seed
  std::size_t max_prefix_blocks = 1'000'000;  // of sixteen tokens
};

/// One class because whom a request goes to, and what becomes of it, follow from the same counts,
/// under one lock.
class Router final : public engine::EngineClient {
 public:
  /// `clock` outlives the router.
  Router(const RouterConfig& config, const Clock& clock);
  /// Its engines have left, or tell nothing any more. Requests that wait end with kShuttingDown.
  ~Router() override;
  Router(const Router&) = delete;
  Router& operator=(const Router&) = delete;

  // Engines: any thread but those that updates come on. `engine` outlives its stay.

  /// It gets requests from now on, as long as its weights are of weight_version(): those of the
  /// first to join, or of the last update. It is paused or put to sleep first if the others are;
  /// the error is that of those calls.
  Expected<EngineId> join(engine::EngineClient& engine);
  /// It gets none any more. Its requests go on elsewhere, or wait for an engine. Returns when it
  /// has none left and nobody calls it: an engine that may not answer is to be lost first
  /// (RemoteEngine::disconnect).
  void leave(EngineId engine);
  /// Told as soon as an engine is known to be lost; on its thread, or on that of a caller. Does
  /// little. Set before the first joins.
  void set_on_lost(std::function<void(EngineId)> on_lost) { on_lost_ = std::move(on_lost); }
  /// There is no hope: every request, wherever it is, ends with kEngineLost and this message, as do
  /// all that come from now on.
  void give_up(const std::string& message);

  struct EngineView {
    EngineId id{};
    bool is_serving = false;      // gets requests
    int64_t num_open = 0;         // requests
    int64_t num_begun = 0;        // of those, that have been told something
    int64_t num_told = 0;         // updates with tokens, ever
    int64_t expected_tokens = 0;  // its work
  };
  std::vector<EngineView> engines() const;
  int64_t num_waiting() const;  // for an engine

  engine::RequestHandle submit(engine::GenerateRequest request, OnUpdate on_update) override;
  Expected<void> abort(engine::RequestHandle request) override;
  Expected<void> abort_prefix(const std::string& prefix) override;
  Expected<void> abort_all() override { return abort_prefix(""); }

  // What follows is done by all engines at once, those that join later included; not from threads
  // that updates come on. Who is lost meanwhile is no error.

  Expected<void> pause(engine::PauseMode mode) override;
  Expected<void> resume() override;
  Expected<bool> flush_cache() override;
  Expected<void> sleep() override;
  Expected<void> wake() override;
  /// An engine that does not take the update gets no requests until one succeeds; the error is its.
  Expected<void> update_weights(const engine::WeightUpdate& update) override;
  /// Of all engines, and the error names who differs from the first.
  Expected<WeightChecksums> check_weights(engine::WeightCheck check) override;
  WeightVersion weight_version() const override;
  /// Sums; of seconds the largest.
  Expected<engine::EngineLoad> load() const override;

 private:
  struct Place {
    engine::EngineClient* engine = nullptr;
    WeightVersion version = 0;
    bool has_missed_update = false;  // the last one: its number may be that of older weights
    bool is_lost = false;
    bool is_leaving = false;
    int64_t num_open = 0;
    int64_t num_begun = 0;
    int64_t held_tokens = 0;  // of its requests: prompts and what was sampled
    int64_t num_told = 0;     // updates with tokens, ever
    int64_t num_inside = 0;   // threads that call it
  };
  using Places = std::map<EngineId, Place>;
  using Requests = std::unordered_map<engine::RequestHandle, RoutedRequest>;
  /// An abort that is to be made without the lock.
  struct Abort {
    EngineId engine{};
    engine::RequestHandle request{};
  };
  using Order = std::function<Expected<void>(EngineId, engine::EngineClient&)>;

  /// The request is nowhere: it goes to an engine, waits for one, or ends.
  void dispatch(engine::RequestHandle handle);
  /// With mutex_ held. Where it goes; nothing: nowhere now.
  std::optional<EngineId> choose(RoutedRequest& request);
  /// Why a request that is nowhere ends instead of going somewhere.
  std::optional<engine::FinishReason> why_it_ends(const RoutedRequest& request,
                                                  std::optional<EngineId> chosen) const;
  void take(engine::RequestHandle handle, int64_t stay_number, engine::GenerateUpdate update);
  /// Whether the rest goes on elsewhere after this end.
  bool goes_on(RoutedRequest& request, EngineId from, const engine::FinishReason& finish);
  void leave_place(RoutedRequest& request);
  bool is_serving(const Place& place) const;
  int64_t expected_tokens(const Place& place) const;
  /// Requests that wait elsewhere and are to come to an engine that has room: they are aborted
  /// there, and placed again when they have ended.
  std::vector<Abort> moves_to(EngineId engine);
  void abort_there(const std::vector<Abort>& aborts);
  void dispatch_waiting();
  void end(Requests::node_type request, engine::FinishReason finish);
  Requests::node_type extract(engine::RequestHandle handle);
  void end_all_on_request();

  /// Calls an engine without the lock; it does not leave meanwhile. False: it has left.
  bool inside(EngineId engine, const std::function<void(engine::EngineClient&)>& call) const;
  /// By all that are not lost, at once. The first error of one that is still there.
  Expected<void> order_all(const Order& order);

  const RouterConfig config_;
  const Clock& clock_;
  std::function<void(EngineId)> on_lost_;
  std::mutex control_mutex_;  // one control call, or one engine that joins, at a time
  mutable std::mutex mutex_;  // guards everything below; nothing is called with it held
  mutable std::condition_variable left_;
  mutable Places places_;  // calls that change nothing count who is inside, too
  Requests requests_;
  std::unordered_set<std::string> rids_;       // of requests_
  std::deque<engine::RequestHandle> waiting_;  // for an engine
  PrefixMap prefixes_;
  std::optional<WeightVersion> version_;  // unset before the first engine has joined
  std::optional<std::string> given_up_;
  std::atomic<bool> is_paused_{false};  // changed under control_mutex_
  bool is_asleep_ = false;              // guarded by control_mutex_
  uint64_t num_submitted_ = 0;
  int64_t num_joined_ = 0;
  double mean_sampled_ = 256;  // tokens of a response; a guess before the first has ended
};

}  // namespace slime::router
