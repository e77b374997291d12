#include "gateway/workers.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/url/parse.hpp>
#include <boost/url/url_view.hpp>
#include <utility>

namespace slime::gateway {
namespace {

constexpr std::size_t kMaxIdle = 512;  // connections to one worker
/// SGLang's servers close what was quiet for five seconds.
constexpr std::chrono::seconds kMaxIdleTime{4};

}  // namespace

std::string name_of(WorkerId id) { return fmt::format("w{}", static_cast<int64_t>(id)); }

Expected<WorkerAddress> parse_worker_url(const std::string& text) {
  const bool has_scheme = text.find("://") != std::string::npos;
  const std::string full = has_scheme ? text : "http://" + text;
  const auto url = boost::urls::parse_uri(full);
  if (!url) return failure(fmt::format("\"{}\" is no URL; http://HOST:PORT is one", text));
  if (url->has_userinfo()) return failure("a URL with a user name or a password is refused");
  if (url->scheme() != "http")
    return failure(fmt::format("\"{}\": workers are reached by http:// alone", text));
  const std::string path(url->encoded_path());
  if ((!path.empty() && path != "/") || url->has_query() || url->has_fragment())
    return failure(fmt::format("\"{}\": a worker has no path; http://HOST:PORT", text));
  WorkerAddress address;
  address.host = url->host_address();
  if (address.host.empty()) return failure(fmt::format("\"{}\" names no host", text));
  if (url->has_port() && !url->port().empty()) {
    if (url->port_number() == 0) return failure(fmt::format("\"{}\": no such port", text));
    address.port = url->port_number();
  }
  const bool is_v6 = address.host.find(':') != std::string::npos;
  address.authority =
      fmt::format("{}:{}", is_v6 ? "[" + address.host + "]" : address.host, address.port);
  return address;
}

WorkerId Workers::Lease::id() const { return worker_->id; }
const WorkerAddress& Workers::Lease::address() const { return worker_->address; }

void Workers::Lease::finish(Outcome outcome) {
  if (worker_ && !std::exchange(has_ended_, true)) workers_->end(*worker_, rids_, outcome);
}

std::shared_ptr<net::HttpUpstream> Workers::Lease::take_connection() const {
  std::vector<Idle> closed;  // destroyed without the lock
  const std::lock_guard lock(workers_->mutex_);
  const auto oldest = Clock::now() - kMaxIdleTime;
  std::vector<Idle>& idle = worker_->idle;
  while (!idle.empty()) {
    Idle last = std::move(idle.back());
    idle.pop_back();
    if (last.since >= oldest && last.connection->is_alive()) return std::move(last.connection);
    closed.push_back(std::move(last));
  }
  return nullptr;
}

void Workers::Lease::keep_connection(std::shared_ptr<net::HttpUpstream> connection) const {
  const std::lock_guard lock(workers_->mutex_);
  if (worker_->idle.size() < kMaxIdle && workers_->workers_.contains(worker_->id))
    worker_->idle.push_back({std::move(connection), Clock::now()});
}

Workers::Workers(const WorkersConfig& config)
    : config_(config), policy_(config.policy, config.seed) {}

Expected<WorkerId> Workers::add(const WorkerAddress& address) {
  WorkerId id{};
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [known, worker] : workers_) {
      if (worker->address.authority != address.authority) continue;
      if (worker->is_draining)
        return failure(
            fmt::format("{} finishes what it has; add it when it is gone, or remove it "
                        "at once first",
                        address.url()));
      return known;
    }
    if (workers_.size() >= config_.max_workers)
      return failure(fmt::format("there are {} workers, as many as may be", workers_.size()));
    id = WorkerId{++num_added_};
    auto worker = std::make_shared<Worker>(
        Worker{.id = id, .address = address, .breaker = CircuitBreaker(config_.breaker)});
    worker->is_healthy = !config_.health.is_on;
    worker->was_healthy = worker->is_healthy;
    workers_.emplace(id, std::move(worker));
    if (config_.health.is_on) return id;
  }
  say(fmt::format("{}: serves", address.url()));
  return id;
}

bool Workers::remove(const std::string& name, bool at_once) {
  std::string line;
  {
    const std::lock_guard lock(mutex_);
    const WorkerPtr worker = find_by_name(name);
    if (worker == nullptr) return false;
    worker->is_draining = true;
    const bool is_gone = at_once || worker->load == 0;
    line = is_gone ? fmt::format("{}: removed", worker->address.url())
                   : fmt::format("{}: finishes {} requests, gets no more", worker->address.url(),
                                 worker->load);
    if (is_gone) erase(worker->id);
  }
  say(line);
  return true;
}

void Workers::erase(WorkerId id) {
  policy_.forget(id);
  workers_.erase(id);
}

Workers::WorkerPtr Workers::find_by_name(const std::string& name) const {
  const auto address = parse_worker_url(name);
  for (const auto& [id, worker] : workers_) {
    if (name_of(id) == name) return worker;
    if (address && worker->address.authority == address->authority) return worker;
  }
  return nullptr;
}

Workers::View Workers::view_of(const Worker& worker) const {
  return {.id = worker.id,
          .address = worker.address,
          .is_healthy = worker.is_healthy,
          .is_draining = worker.is_draining,
          .breaker = worker.breaker.state(Clock::now()),
          .load = worker.load,
          .num_requests = worker.num_requests,
          .num_failures = worker.num_failures,
          .why_unhealthy = worker.is_healthy ? "" : worker.why_unhealthy,
          .models = worker.models};
}

std::vector<Workers::View> Workers::list() const {
  const std::lock_guard lock(mutex_);
  std::vector<View> views;
  for (const auto& [id, worker] : workers_) views.push_back(view_of(*worker));
  return views;
}

std::optional<Workers::View> Workers::find(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  const WorkerPtr worker = find_by_name(name);
  return worker == nullptr ? std::nullopt : std::optional(view_of(*worker));
}

bool Workers::may_serve(const Worker& worker, Clock::time_point now) const {
  return worker.is_healthy && !worker.is_draining && worker.breaker.allows(now);
}

bool Workers::has_ready() const {
  const std::lock_guard lock(mutex_);
  const auto now = Clock::now();
  return std::ranges::any_of(workers_,
                             [&](const auto& each) { return may_serve(*each.second, now); });
}

std::optional<Workers::Lease> Workers::choose(const RequestFacts& facts,
                                              const std::set<WorkerId>& tried) {
  const std::lock_guard lock(mutex_);
  const auto now = Clock::now();
  const auto serves_model = [&](const Worker& worker) {
    return std::ranges::find(worker.models, facts.model) != worker.models.end();
  };
  // Also by one that is not healthy now: its model's requests are nobody else's.
  const bool is_model = !facts.model.empty() && std::ranges::any_of(workers_, [&](const auto& it) {
    return serves_model(*it.second);
  });
  std::vector<Candidate> candidates;
  for (const auto& [id, worker] : workers_) {
    if (tried.contains(id) || !may_serve(*worker, now)) continue;
    if (is_model && !serves_model(*worker)) continue;
    candidates.push_back(
        {.id = id, .load = worker->load, .place = hash_of(worker->address.authority)});
  }
  if (candidates.empty()) return std::nullopt;
  const WorkerPtr& worker = workers_.at(candidates[policy_.choose(candidates, facts)].id);
  ++worker->load;
  ++worker->num_requests;
  worker->breaker.begin(now);
  for (const std::string& rid : facts.rids) rids_.emplace(rid, worker->id);
  return Lease(*this, worker, facts.rids);
}

void Workers::end(Worker& worker, const std::vector<std::string>& rids, Lease::Outcome outcome) {
  std::string line;
  {
    const std::lock_guard lock(mutex_);
    const auto now = Clock::now();
    --worker.load;
    for (const std::string& rid : rids) {
      const auto [begin, end] = rids_.equal_range(rid);
      const auto found =
          std::find_if(begin, end, [&](const auto& each) { return each.second == worker.id; });
      if (found != end) rids_.erase(found);
    }
    const auto before = worker.breaker.state(now);
    switch (outcome) {
      case Lease::Outcome::kSuccess:
        worker.breaker.succeed(now);
        break;
      case Lease::Outcome::kFailure:
        ++worker.num_failures;
        worker.breaker.fail(now);
        worker.next_check = {};  // it may be gone: look at once
        break;
      case Lease::Outcome::kUnknown:
        worker.breaker.leave(now);
        break;
    }
    const auto after = worker.breaker.state(now);
    if (before != CircuitBreaker::State::kOpen && after == CircuitBreaker::State::kOpen)
      line = fmt::format("{}: fails too often; gets nothing for {:g} s", worker.address.url(),
                         static_cast<double>(config_.breaker.open_time.count()) / 1000);
    if (before == CircuitBreaker::State::kHalfOpen && after == CircuitBreaker::State::kClosed)
      line = fmt::format("{}: answers again", worker.address.url());
    if (worker.is_draining && worker.load == 0 && workers_.contains(worker.id)) {
      line = fmt::format("{}: has finished; removed", worker.address.url());
      erase(worker.id);
    }
  }
  if (!line.empty()) say(line);
}

std::set<WorkerId> Workers::with_rid(const std::string& prefix) const {
  const std::lock_guard lock(mutex_);
  std::set<WorkerId> found;
  for (auto each = rids_.lower_bound(prefix);
       each != rids_.end() && each->first.starts_with(prefix); ++each)
    found.insert(each->second);
  return found;
}

void Workers::drop_connections() {
  const std::lock_guard lock(mutex_);
  for (const auto& [id, worker] : workers_) worker->idle.clear();
}

std::vector<Workers::View> Workers::due_for_check() {
  const std::lock_guard lock(mutex_);
  std::vector<View> due;
  if (!config_.health.is_on) return due;
  const auto now = Clock::now();
  for (const auto& [id, worker] : workers_) {
    if (worker->next_check > now) continue;
    worker->next_check = now + config_.health.timeout + config_.health.interval;  // of the answer
    due.push_back(view_of(*worker));
  }
  return due;
}

void Workers::note_models(WorkerId id, std::vector<std::string> models) {
  const std::lock_guard lock(mutex_);
  const auto found = workers_.find(id);
  if (found != workers_.end()) found->second->models = std::move(models);
}

void Workers::note_check(WorkerId id, const std::optional<std::string>& problem) {
  std::string line;
  {
    const std::lock_guard lock(mutex_);
    const auto found = workers_.find(id);
    if (found == workers_.end()) return;
    Worker& worker = *found->second;
    if (problem) worker.why_unhealthy = *problem;
    const bool is_alike = problem.has_value() != worker.is_healthy;
    worker.num_checks_alike = is_alike ? 0 : worker.num_checks_alike + 1;
    const int needed = worker.is_healthy    ? config_.health.failures_to_leave
                       : worker.was_healthy ? config_.health.successes_to_return
                                            : 1;
    if (worker.num_checks_alike >= needed) {
      worker.is_healthy = !worker.is_healthy;
      worker.was_healthy = true;
      worker.num_checks_alike = 0;
      line = worker.is_healthy ? fmt::format("{}: serves", worker.address.url())
                               : fmt::format("{}: gets nothing until it is healthy again: {}",
                                             worker.address.url(), worker.why_unhealthy);
    }
    // What may be about to change is looked at more often.
    const bool is_soon = !worker.was_healthy || worker.num_checks_alike > 0;
    worker.next_check =
        Clock::now() + (is_soon ? std::min(config_.health.startup_interval, config_.health.interval)
                                : config_.health.interval);
  }
  if (!line.empty()) say(line);
}

}  // namespace slime::gateway
