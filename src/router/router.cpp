#include "router/router.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/splitmix64.h"

namespace slime::router {

using engine::aborted;
using engine::FinishReason;
using engine::GenerateUpdate;
using engine::RequestHandle;
using Cause = FinishReason::Cause;

namespace {

/// An engine that has the whole of a request as a prefix may have so much more work than the least, as a
/// share of that; one that has a part of it, that part of it. A group of samples is a small part of an
/// engine's work while there is much of it, and spreads where there is little.
constexpr double kSlack = 1.0 / 8;
/// Of the mean length of responses: what one that ends changes.
constexpr double kMeanWeight = 1.0 / 32;
/// A request waits when the others of its engine have got so many updates each since it came.
constexpr int64_t kLongWait = 16;

bool says_lost(const FinishReason& finish) {
  return finish.kind == FinishReason::Kind::kAbort &&
         (finish.cause == Cause::kEngineLost || finish.cause == Cause::kShuttingDown);
}

FinishReason aborted_by_caller() { return aborted(Cause::kRequested, "aborted by the caller"); }

}  // namespace

Router::Router(const RouterConfig& config, const Clock& clock)
    : config_(config), clock_(clock), prefixes_(config.max_prefix_blocks) {}

Router::~Router() {
  std::unique_lock lock(mutex_);
  std::vector<Requests::node_type> open;
  for (const RequestHandle handle : std::exchange(waiting_, {})) open.push_back(extract(handle));
  lock.unlock();
  for (auto& request : open)
    end(std::move(request), aborted(Cause::kShuttingDown, "the router is shutting down"));
}

RequestHandle Router::submit(engine::GenerateRequest request, OnUpdate on_update) {
  std::unique_lock lock(mutex_);
  const uint64_t number = ++num_submitted_;
  const auto handle = static_cast<RequestHandle>(number);
  if (request.rid.empty()) request.rid = fmt::format("routed-{}", number);
  // Engines would give requests of their own the same random numbers, and a moved one others.
  if (!request.sampling.sampling_seed)
    request.sampling.sampling_seed = splitmix64(config_.seed + number * kGoldenRatio64);
  RoutedRequest routed(std::move(request), std::move(on_update), clock_.now());
  if (!rids_.insert(routed.rid()).second) {
    lock.unlock();
    GenerateUpdate refused = routed.last_update(
        aborted(Cause::kBadRequest, fmt::format("rid {} is already running", routed.rid())),
        clock_.now());
    routed.on_update(std::move(refused));
    return handle;
  }
  requests_.emplace(handle, std::move(routed));
  lock.unlock();
  dispatch(handle);
  return handle;
}

bool Router::is_serving(const Place& place) const {
  return !place.is_lost && !place.is_leaving && !place.has_missed_update &&
         place.version == version_;
}

int64_t Router::expected_tokens(const Place& place) const {
  return place.held_tokens +
         static_cast<int64_t>(static_cast<double>(place.num_open) * mean_sampled_);
}

std::optional<EngineId> Router::choose(RoutedRequest& request) {
  struct Candidate {
    EngineId id;
    int64_t num_open = 0;
    int64_t work = 0;     // tokens
    int64_t matched = 0;  // tokens of the request that it has
  };
  std::vector<Candidate> candidates;
  for (const auto& [id, place] : places_) {
    if (is_serving(place) && !request.troubles.refused_by.contains(id))
      candidates.push_back({id, place.num_open, expected_tokens(place)});
  }
  if (candidates.empty()) return std::nullopt;
  const double slack =
      kSlack *
      static_cast<double>(std::ranges::min_element(candidates, {}, &Candidate::work)->work);
  const auto all = static_cast<double>(std::max<int64_t>(1, request.num_tokens()));
  for (const PrefixMap::Match& match : prefixes_.match(request.keys())) {
    const auto found = std::ranges::find(candidates, match.engine, &Candidate::id);
    if (found == candidates.end() || match.num_tokens == 0) continue;
    const double share = std::min(1.0, static_cast<double>(match.num_tokens) / all);
    found->matched = match.num_tokens;
    found->work -= match.num_tokens + static_cast<int64_t>(slack * share);
  }
  // Among those with as much of it and nearly as little work the one with the fewest requests: a step
  // takes as long as it has rows.
  const Candidate least = *std::ranges::min_element(candidates, {}, &Candidate::work);
  std::erase_if(candidates, [&](const Candidate& candidate) {
    return candidate.matched != least.matched ||
           candidate.work > least.work + static_cast<int64_t>(slack);
  });
  return std::ranges::min_element(candidates, {},
                                  [](const Candidate& candidate) {
                                    return std::pair(candidate.num_open, candidate.work);
                                  })
      ->id;
}

std::optional<FinishReason> Router::why_it_ends(const RoutedRequest& request,
                                                std::optional<EngineId> chosen) const {
  if (request.is_aborted) return aborted_by_caller();
  if (request.is_whole()) return FinishReason{.kind = FinishReason::Kind::kLength};
  if (request.troubles.num_losses >= config_.max_losses) {
    return aborted(Cause::kEngineFailed,
                   fmt::format("{} engines were lost, one after the other, while they had request "
                               "{}, and none drew a token of it",
                               request.troubles.num_losses, request.rid()));
  }
  if (given_up_) return aborted(Cause::kEngineLost, *given_up_);
  if (chosen) return std::nullopt;
  const auto serves = [this](const auto& entry) { return is_serving(entry.second); };
  if (request.troubles.last_refusal && std::ranges::any_of(places_, serves))
    return request.troubles.last_refusal;
  if (static_cast<int64_t>(waiting_.size()) >= config_.max_waiting) {
    return aborted(Cause::kQueueFull,
                   fmt::format("{} requests wait for an engine", waiting_.size()));
  }
  return std::nullopt;
}

void Router::dispatch(RequestHandle handle) {
  std::unique_lock lock(mutex_);
  RoutedRequest& request = requests_.at(handle);
  const std::optional<EngineId> chosen = choose(request);
  if (std::optional<FinishReason> why = why_it_ends(request, chosen)) {
    Requests::node_type node = extract(handle);
    lock.unlock();
    return end(std::move(node), std::move(*why));
  }
  if (!chosen) {
    waiting_.push_back(handle);
    return;
  }
  Place& place = places_.at(*chosen);
  const int64_t number = request.stay.number + 1;
  request.stay = {.number = number, .engine = chosen, .handle = {}, .told_before = place.num_told};
  ++place.num_open;
  place.held_tokens += request.num_tokens();
  prefixes_.remember(request.keys(), *chosen);
  engine::GenerateRequest rest = request.next_part();
  lock.unlock();
  std::optional<RequestHandle> in_engine;
  inside(*chosen, [&](engine::EngineClient& engine) {
    in_engine = engine.submit(std::move(rest), [this, handle, number](GenerateUpdate update) {
      take(handle, number, std::move(update));
    });
  });
  lock.lock();
  const auto found = requests_.find(handle);
  if (found == requests_.end() || found->second.stay.number != number || !found->second.stay.engine)
    return;
  found->second.stay.handle = in_engine;
  const auto at = places_.find(*chosen);
  found->second.stay.is_moving |= at->second.is_leaving;
  if (!found->second.is_aborted && !found->second.stay.is_moving) return;
  lock.unlock();
  abort_there({{*chosen, *in_engine}});
}

void Router::take(RequestHandle handle, int64_t number, GenerateUpdate update) {
  std::unique_lock lock(mutex_);
  const auto found = requests_.find(handle);
  // An engine may tell an end twice.
  if (found == requests_.end() || found->second.stay.number != number || !found->second.stay.engine)
    return;
  RoutedRequest& request = found->second;
  const EngineId from = *request.stay.engine;
  Place& place = places_.at(from);
  const auto count = static_cast<int64_t>(update.output_ids.size());
  place.held_tokens += count;
  place.num_told += count > 0 ? 1 : 0;
  if (count > 0 && !std::exchange(request.stay.has_begun, true)) ++place.num_begun;
  if (!update.finish) {
    const std::optional<GenerateUpdate> told =
        request.take(std::move(update), /*ends=*/false, clock_.now());
    lock.unlock();  // the request stays: only this thread can end it now
    if (told) request.on_update(*told);
    return;
  }
  const FinishReason finish = *update.finish;
  const bool newly_lost = says_lost(finish) && !std::exchange(place.is_lost, true);
  const bool moves = goes_on(request, from, finish);
  std::optional<GenerateUpdate> told =
      request.take(std::move(update), /*ends=*/!moves, clock_.now());
  leave_place(request);
  const std::vector<Abort> aborts = moves_to(from);
  Requests::node_type ended;
  if (!moves) {
    prefixes_.remember(request.keys(), from);
    if (finish.kind != FinishReason::Kind::kAbort)
      mean_sampled_ += kMeanWeight * (static_cast<double>(request.num_sampled()) - mean_sampled_);
    ended = extract(handle);
  }
  lock.unlock();
  if (newly_lost && on_lost_) on_lost_(from);
  if (told) request.on_update(std::move(*told));
  if (moves) dispatch(handle);
  abort_there(aborts);
}

bool Router::goes_on(RoutedRequest& request, EngineId from, const FinishReason& finish) {
  if (finish.kind != FinishReason::Kind::kAbort) return false;
  switch (finish.cause) {
    case Cause::kEngineLost:
    case Cause::kShuttingDown:
      ++request.troubles.num_losses;
      return true;  // one that was aborted too ends where it would be placed
    case Cause::kQueueFull:
    case Cause::kEngineFailed:
      request.troubles.refused_by.insert(from);
      request.troubles.last_refusal = finish;
      return true;
    case Cause::kRequested:
      return request.stay.is_moving && !request.is_aborted;
    default:
      return false;
  }
}

void Router::leave_place(RoutedRequest& request) {
  Place& place = places_.at(*request.stay.engine);
  place.held_tokens -= request.num_tokens();
  --place.num_open;
  place.num_begun -= request.stay.has_begun ? 1 : 0;
  request.stay.engine.reset();
  request.stay.handle.reset();
  if (place.num_open == 0) left_.notify_all();
}

std::vector<Router::Abort> Router::moves_to(EngineId to) {
  const Place& free = places_.at(to);
  const auto num_waiting = [](const Place& place) { return place.num_open - place.num_begun; };
  if (!is_serving(free) || (free.num_open > 0 && num_waiting(free) > 0)) return {};
  const auto waits = [&](const auto& entry) {
    return entry.first == to || entry.second.is_lost ? 0 : num_waiting(entry.second);
  };
  const auto from = std::ranges::max_element(places_, {}, waits);
  if (waits(*from) == 0) return {};
  const Place& full = from->second;
  const bool is_idle = free.num_open == 0;
  // What an engine runs, another of the same kind can run too.
  const int64_t most = is_idle ? (num_waiting(full) + (full.num_begun > 0 ? 1 : 0)) / 2
                               : std::min(num_waiting(full), full.num_begun - free.num_open);
  if (most <= 0) return {};
  std::vector<RequestHandle> found;
  for (const auto& [handle, request] : requests_) {
    const bool is_there =
        request.stay.engine == from->first && request.stay.handle && !request.stay.has_begun;
    if (!is_there || request.stay.is_moving || request.is_aborted) continue;
    const bool waits_long = full.num_begun > 0 &&
                            full.num_told - request.stay.told_before >= kLongWait * full.num_begun;
    if (is_idle || waits_long) found.push_back(handle);
  }
  // The newest: who came first is the next there, or computes its prompt already.
  std::ranges::sort(found, std::ranges::greater());
  if (static_cast<int64_t>(found.size()) > most) found.resize(most);
  std::vector<Abort> aborts;
  for (const RequestHandle handle : found) {
    RoutedRequest& request = requests_.at(handle);
    request.stay.is_moving = true;
    aborts.push_back({from->first, *request.stay.handle});
  }
  return aborts;
}

/// An engine that cannot be told ends its requests by being lost.
void Router::abort_there(const std::vector<Abort>& aborts) {
  for (const Abort& abort : aborts) {
    inside(abort.engine,
           [&](engine::EngineClient& engine) { static_cast<void>(engine.abort(abort.request)); });
  }
}

void Router::dispatch_waiting() {
  std::unique_lock lock(mutex_);
  const std::deque<RequestHandle> waiting = std::exchange(waiting_, {});
  lock.unlock();
  for (const RequestHandle handle : waiting) dispatch(handle);
}

void Router::end(Requests::node_type request, FinishReason finish) {
  GenerateUpdate last = request.mapped().last_update(std::move(finish), clock_.now());
  request.mapped().on_update(std::move(last));
}

Router::Requests::node_type Router::extract(RequestHandle handle) {
  Requests::node_type request = requests_.extract(handle);
  rids_.erase(request.mapped().rid());
  return request;
}

Expected<void> Router::abort(RequestHandle handle) {
  std::unique_lock lock(mutex_);
  const auto found = requests_.find(handle);
  if (found == requests_.end()) return {};
  RoutedRequest& request = found->second;
  request.is_aborted = true;
  if (std::erase(waiting_, handle) > 0) {
    Requests::node_type ended = extract(handle);
    lock.unlock();
    end(std::move(ended), aborted_by_caller());
    return {};
  }
  // On its way to an engine: whoever sends it there looks.
  if (!request.stay.engine || !request.stay.handle) return {};
  const Abort there{*request.stay.engine, *request.stay.handle};
  lock.unlock();
  abort_there({there});
  return {};
}

Expected<void> Router::abort_prefix(const std::string& prefix) {
  std::vector<RequestHandle> meant;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [handle, request] : requests_)
      if (request.rid().starts_with(prefix)) meant.push_back(handle);
  }
  std::ranges::sort(meant);
  for (const RequestHandle handle : meant) static_cast<void>(abort(handle));
  return {};
}

WeightVersion Router::weight_version() const {
  const std::lock_guard lock(mutex_);
  return version_.value_or(0);
}

int64_t Router::num_waiting() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int64_t>(waiting_.size());
}

std::vector<Router::EngineView> Router::engines() const {
  const std::lock_guard lock(mutex_);
  std::vector<EngineView> views;
  for (const auto& [id, place] : places_) {
    views.push_back({.id = id,
                     .is_serving = is_serving(place),
                     .num_open = place.num_open,
                     .num_begun = place.num_begun,
                     .num_told = place.num_told,
                     .expected_tokens = expected_tokens(place)});
  }
  return views;
}

void Router::give_up(const std::string& message) {
  std::vector<Abort> aborts;
  {
    const std::lock_guard lock(mutex_);
    given_up_ = message;
    for (auto& [handle, request] : requests_) {
      if (!request.stay.engine) continue;
      request.stay.is_moving = true;  // whoever would place it again ends it
      if (request.stay.handle) aborts.push_back({*request.stay.engine, *request.stay.handle});
    }
  }
  abort_there(aborts);
  dispatch_waiting();
}

}  // namespace slime::router
