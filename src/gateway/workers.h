#pragma once

/// Workers of a gateway: servers of SGLang's protocol, who of them may get a request, and what is under
/// way in each. Any thread.
///
///   added -> starting -> healthy <-> unhealthy      health checks decide
///                            |
///                         draining -> gone          finishes what it has, gets nothing new

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/expected.h"
#include "gateway/circuit_breaker.h"
#include "gateway/policy.h"
#include "net/http_upstream.h"

namespace slime::gateway {

struct HealthConfig {
  bool is_on = true;  // off: workers count as healthy
  std::string path = "/health";
  int failures_to_leave = 3;    // in a row, until a worker gets nothing any more
  int successes_to_return = 2;  // in a row; a new worker needs one
  std::chrono::milliseconds interval{10'000};
  std::chrono::milliseconds startup_interval{500};  // of those that were never healthy
  std::chrono::milliseconds timeout{5'000};
};

struct WorkersConfig {
  PolicyConfig policy;
  BreakerConfig breaker;
  HealthConfig health;
  std::size_t max_workers = 1024;
  uint64_t seed = 0;
};

struct WorkerAddress {
  std::string host;  // to connect to, without brackets
  std::uint16_t port = 80;
  std::string authority;  // for the Host field: "127.0.0.1:30000"

  std::string url() const { return "http://" + authority; }
};

/// Of "http://127.0.0.1:30000", also without the scheme or with a slash at its end.
Expected<WorkerAddress> parse_worker_url(const std::string& text);

/// "w3": what routes call a worker.
std::string name_of(WorkerId id);

/// One class because who may be chosen follows from health, breakers, drains and loads together.
class Workers final {
  struct Worker;

 public:
  using Clock = std::chrono::steady_clock;

  explicit Workers(const WorkersConfig& config);

  /// Said of a worker whose state changed, a line for a person. Any thread. Before the first is added.
  void tell_by(std::function<void(const std::string&)> tell) { tell_ = std::move(tell); }

  /// An address that is there already is no error: its id. One that drains stays. The error: there
  /// are too many.
  Expected<WorkerId> add(const WorkerAddress& address);
  /// It gets nothing new and is gone when it has nothing left, or `at_once`: then what it has goes on
  /// outside of any count. By id ("w3") or URL; false: there is none.
  bool remove(const std::string& name, bool at_once);

  struct View {
    WorkerId id{};
    WorkerAddress address;
    bool is_healthy = false;
    bool is_draining = false;
    CircuitBreaker::State breaker = CircuitBreaker::State::kClosed;
    int64_t load = 0;          // requests under way
    int64_t num_requests = 0;  // ever
    int64_t num_failures = 0;
    std::string why_unhealthy;  // of the last check that failed
    std::vector<std::string> models =
        {};  // that it serves, by its own words; empty: it did not say
  };
  std::vector<View> list() const;
  std::optional<View> find(const std::string& name) const;
  bool has_ready() const;

  /// A request's stay in a worker. Its end counts it out; without one of the calls below nothing is
  /// known of the worker.
  class Lease {
   public:
    ~Lease() { finish(Outcome::kUnknown); }
    Lease(Lease&&) = default;
    Lease& operator=(Lease&&) = delete;
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;

    WorkerId id() const;
    const WorkerAddress& address() const;
    void succeed() { finish(Outcome::kSuccess); }
    void fail() { finish(Outcome::kFailure); }

    /// A connection that was kept; null: there is none that still stands.
    std::shared_ptr<net::HttpUpstream> take_connection() const;
    void keep_connection(std::shared_ptr<net::HttpUpstream> connection) const;

   private:
    friend class Workers;
    enum class Outcome { kSuccess, kFailure, kUnknown };
    Lease(Workers& workers, std::shared_ptr<Worker> worker, std::vector<std::string> rids)
        : workers_(&workers), worker_(std::move(worker)), rids_(std::move(rids)) {}
    void finish(Outcome outcome);

    Workers* workers_;
    std::shared_ptr<Worker> worker_;  // null: moved from
    std::vector<std::string> rids_;
    bool has_ended_ = false;
  };

  /// Whoever the policy takes of those that may get a request and are not in `tried`; nothing: there
  /// is none. Where some serve the model that `facts` name, these alone; a name that no worker has is
  /// everybody's. A session's requests are one worker's, whatever the policy. The rids of `facts` are in it until the lease ends.
  std::optional<Lease> choose(const RequestFacts& facts, const std::set<WorkerId>& tried);
  /// Who has a request whose rid starts with `prefix`.
  std::set<WorkerId> with_rid(const std::string& prefix) const;

  /// Those that are kept. No request is under way.
  void drop_connections();

  /// For health checks: those due now, which are not due again before their interval has passed.
  std::vector<View> due_for_check();
  void note_check(WorkerId id, const std::optional<std::string>& problem);
  void note_models(WorkerId id, std::vector<std::string> models);

 private:
  struct Idle {
    std::shared_ptr<net::HttpUpstream> connection;
    Clock::time_point since;
  };
  struct Worker {
    WorkerId id{};
    WorkerAddress address;
    CircuitBreaker breaker;
    bool was_healthy = false;  // once
    bool is_healthy = false;
    bool is_draining = false;
    int num_checks_alike = 0;  // in a row, against is_healthy
    std::string why_unhealthy = {};
    std::vector<std::string> models = {};
    Clock::time_point next_check{};
    int64_t load = 0;
    int64_t num_requests = 0;
    int64_t num_failures = 0;
    std::vector<Idle> idle = {};
  };
  using WorkerPtr = std::shared_ptr<Worker>;

  void end(Worker& worker, const std::vector<std::string>& rids, Lease::Outcome outcome);
  bool may_serve(const Worker& worker,
                 Clock::time_point now) const;  // as the next, with mutex_ held
  void erase(WorkerId id);
  WorkerPtr find_by_name(const std::string& name) const;
  View view_of(const Worker& worker) const;
  void say(const std::string& line) const {
    if (tell_) tell_(line);
  }

  const WorkersConfig config_;
  std::function<void(const std::string&)> tell_;
  mutable std::mutex mutex_;
  // Guarded by mutex_, as the members of each worker are but for id and address.
  std::map<WorkerId, WorkerPtr> workers_;
  Policy policy_;
  int64_t num_added_ = 0;
  std::multimap<std::string, WorkerId> rids_;  // of what is under way
};

}  // namespace slime::gateway
