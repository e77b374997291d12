#pragma once

/// One request of a router's caller, on its way through engines: what is left of it, and what the
/// caller is told of the part that one engine draws. The router's lock guards it.

#include <cstdint>
#include <optional>
#include <set>
#include <string>

#include "core/clock.h"
#include "engine/client.h"
#include "router/prefix_map.h"

namespace slime::router {

class RoutedRequest final {
 public:
  RoutedRequest(engine::GenerateRequest request, engine::EngineClient::OnUpdate on_update_in,
                Clock::TimePoint submitted);

  const std::string& rid() const { return rest_.rid; }
  /// Of prompt and what was sampled: all tokens of it so far.
  const std::vector<TokenKey>& keys();
  int64_t num_sampled() const { return num_tokens() - prompt_tokens_; }
  int64_t num_tokens() const { return static_cast<int64_t>(rest_.input_ids.size()); }
  /// Nothing is left to draw: no engine has to be asked.
  bool is_whole() const { return num_sampled() > 0 && rest_.sampling.max_new_tokens <= 0; }

  /// What the next engine is asked for: the rest, from the tokens that were told. An engine that is
  /// lost takes with it what it has not told, so it is to tell soon also where the caller wants one
  /// update at the end.
  engine::GenerateRequest next_part() const;
  /// The engine tells this: it is of the whole response from now on, and counts what is told.
  /// Returns what the caller is to be told now; nothing where it waits for the end. `ends`: the
  /// finish, if there is one, is that of the whole.
  std::optional<engine::GenerateUpdate> take(engine::GenerateUpdate update, bool ends,
                                             Clock::TimePoint now);
  /// The end, of a request that no engine has.
  engine::GenerateUpdate last_update(engine::FinishReason finish, Clock::TimePoint now);

  engine::EngineClient::OnUpdate on_update;

  /// Its stay in one engine.
  struct Stay {
    int64_t number = 0;              // counts stays: what earlier engines tell is nothing any more
    std::optional<EngineId> engine;  // unset: nowhere
    std::optional<engine::RequestHandle> handle;  // unset: the engine's submit() has not returned
    bool has_begun = false;                       // the engine has told something
    int64_t told_before = 0;                      // by the engine, when it got this
    bool is_moving = false;  // the router has aborted it there, to place it elsewhere
  };
  Stay stay;
  bool is_aborted = false;  // by the caller: it goes nowhere any more

  /// Since its last token.
  struct Troubles {
    int64_t num_losses = 0;  // engines that were lost with it
    std::set<EngineId> refused_by;
    std::optional<engine::FinishReason> last_refusal;
  };
  Troubles troubles;

 private:
  engine::GenerateRequest rest_;  // what is left; the input has the tokens that were sampled
  std::vector<TokenKey> keys_;    // of the first ones of it
  int64_t prompt_tokens_;
  bool gathers_;                 // the caller wants one update, at the end
  engine::GenerateUpdate held_;  // of such a caller
  Clock::TimePoint submitted_;
  int64_t cached_tokens_ = 0;  // of the prompt, in the first engine
  struct Delays {
    int64_t num_retractions = 0;
    double queue_seconds = 0;
  };
  Delays before_;  // in earlier engines
};

}  // namespace slime::router
