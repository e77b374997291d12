#include "text/grammar/grammar_compiler.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <future>
#include <list>
#include <mutex>
#include <stop_token>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/error.h"

namespace slime::text {
namespace {

using GrammarClock = std::chrono::steady_clock;

std::string key_of_grammar(const GrammarSpec& spec) {
  return fmt::format("{} {} {}", grammar_kind_name(spec.kind), spec.max_whitespace, spec.source);
}

GrammarResult failed_grammar(GrammarFailure kind, std::string message) {
  return tl::make_unexpected(GrammarError{kind, std::move(message)});
}

/// Without the grammar itself.
constexpr std::size_t kEntryBytes = 1024;

}  // namespace

struct GrammarCompiler::Parts {
  struct GrammarWaiter {
    GrammarCompiler::Done done;
    GrammarClock::time_point deadline;
  };

  struct GrammarEntry {
    enum class State : uint8_t { kWaiting, kRunning, kReady };
    GrammarSpec spec;
    State state = State::kWaiting;
    GrammarClock::time_point started = {};  // of kRunning
    GrammarResult result = tl::make_unexpected(GrammarError{});
    std::vector<GrammarWaiter> waiters = {};
    // Of kReady.
    std::list<std::string>::iterator use = {};
    std::size_t bytes = 0;
  };

  Parts(std::shared_ptr<const GrammarVocabulary> of, GrammarCompilerConfig with)
      : vocabulary(std::move(of)), config(with) {
    check(config.num_threads > 0 && config.num_waiting >= 0, "a compiler has threads");
    for (int i = 0; i < config.num_threads; ++i)
      threads.emplace_back([this](const std::stop_token& stop) { work(stop); });
    threads.emplace_back([this](const std::stop_token& stop) { watch(stop); });
  }

  ~Parts() {
    std::vector<GrammarWaiter> left;
    {
      const std::lock_guard lock(mutex);
      is_closed = true;
      for (auto& [key, entry] : entries) move_waiters(entry, left);
      queue.clear();
    }
    for (std::jthread& thread : threads) thread.request_stop();
    changed.notify_all();
    for (GrammarWaiter& waiter : left)
      waiter.done(failed_grammar(GrammarFailure::kShutDown, "the server is shutting down"));
    threads.clear();
  }

  static void move_waiters(GrammarEntry& entry, std::vector<GrammarWaiter>& to) {
    std::move(entry.waiters.begin(), entry.waiters.end(), std::back_inserter(to));
    entry.waiters.clear();
  }

  std::string too_slow(const GrammarSpec& spec) const {
    return fmt::format(
        "{} takes longer to compile than {} ms; fewer alternatives, properties or counts take less",
        grammar_kind_name(spec.kind), config.time_limit.count());
  }
  std::string busy() const {
    return fmt::format("{} grammars are being compiled or wait for it; try again later",
                       config.num_threads + config.num_waiting);
  }

  /// The answer if there is one now; otherwise `done` waits.
  std::optional<GrammarResult> enter(const GrammarSpec& spec, GrammarCompiler::Done& done) {
    const std::lock_guard lock(mutex);
    if (is_closed) return failed_grammar(GrammarFailure::kShutDown, "the server is shutting down");
    std::string key = key_of_grammar(spec);
    const auto now = GrammarClock::now();
    const auto found = entries.find(key);
    if (found != entries.end()) {
      GrammarEntry& entry = found->second;
      if (entry.state == GrammarEntry::State::kReady) {
        ++counts.cache_hits;
        uses.splice(uses.begin(), uses, entry.use);
        return entry.result;
      }
      if (entry.state == GrammarEntry::State::kRunning && now - entry.started > config.time_limit) {
        ++counts.too_slow;
        return failed_grammar(GrammarFailure::kTooSlow, too_slow(spec));
      }
      entry.waiters.push_back({std::move(done), now + config.time_limit});
    } else {
      if (static_cast<int>(queue.size()) >= config.num_waiting + idle) {
        ++counts.busy;
        return failed_grammar(GrammarFailure::kBusy, busy());
      }
      GrammarEntry& entry = entries[key];
      entry.spec = spec;
      entry.waiters.push_back({std::move(done), now + config.time_limit});
      queue.push_back(std::move(key));
    }
    ++num_entered;
    changed.notify_all();
    return std::nullopt;
  }

  void work(const std::stop_token& stop) {
    std::unique_lock lock(mutex);
    while (!stop.stop_requested()) {
      ++idle;
      changed.wait(lock, stop, [&] { return !queue.empty(); });
      --idle;
      if (stop.stop_requested()) return;
      const std::string key = std::move(queue.front());
      queue.pop_front();
      GrammarEntry& entry = entries.at(key);
      entry.state = GrammarEntry::State::kRunning;
      entry.started = GrammarClock::now();
      ++counts.running;
      lock.unlock();
      GrammarResult result = compiled(entry.spec);  // running entries stay where they are
      std::vector<GrammarWaiter> waiters;
      lock.lock();
      --counts.running;
      keep(key, entry, result);
      move_waiters(entry, waiters);
      lock.unlock();
      for (GrammarWaiter& waiter : waiters) waiter.done(result);
      measure();
      lock.lock();
      make_room(key);
    }
  }

  GrammarResult compiled(const GrammarSpec& spec) const {
    try {
      return compile_grammar(spec, *vocabulary, config.limits);
    } catch (const ConfigError& error) {
      return failed_grammar(GrammarFailure::kRefused, error.what());
    } catch (const std::exception& error) {  // a grammar must not end the server
      return failed_grammar(
          GrammarFailure::kRefused,
          fmt::format("{} cannot be compiled: {}", grammar_kind_name(spec.kind), error.what()));
    }
  }

  void keep(const std::string& key, GrammarEntry& entry, const GrammarResult& result) {
    ++(result ? counts.compiled : counts.refused);
    entry.state = GrammarEntry::State::kReady;
    entry.result = result;
    uses.push_front(key);
    entry.use = uses.begin();
  }

  /// Grammars grow as their masks are computed, so their sizes are asked anew; a grammar answers when no mask of
  /// it is being computed, so no lock is held.
  void measure() {
    std::vector<std::pair<std::string, std::shared_ptr<const CompiledGrammar>>> grammars;
    {
      const std::lock_guard lock(mutex);
      for (const std::string& key : uses) {
        if (const GrammarResult& result = entries.at(key).result)
          grammars.emplace_back(key, *result);
      }
    }
    std::vector<std::size_t> sizes;
    for (const auto& [key, grammar] : grammars) sizes.push_back(grammar->size_bytes());
    const std::lock_guard lock(mutex);
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      const auto entry = entries.find(grammars[i].first);
      if (entry != entries.end()) entry->second.bytes = sizes[i];
    }
  }

  /// Those used longest ago leave.
  void make_room(const std::string& newest) {
    std::size_t bytes = 0;
    for (auto use = uses.begin(); use != uses.end();) {
      const auto entry = entries.find(*use);
      const std::size_t own = entry->second.bytes + 2 * use->size() + kEntryBytes;
      if (bytes + own > config.cache_bytes && *use != newest) {
        entries.erase(entry);
        use = uses.erase(use);
      } else {
        bytes += own;
        ++use;
      }
    }
    counts.cache_bytes = bytes;
  }

  /// Answers those whose time is over.
  void watch(const std::stop_token& stop) {
    std::unique_lock lock(mutex);
    while (!stop.stop_requested()) {
      const auto now = GrammarClock::now();
      auto next = GrammarClock::time_point::max();
      std::vector<std::pair<GrammarWaiter, GrammarResult>> late;
      for (auto at = entries.begin(); at != entries.end();) {
        GrammarEntry& entry = at->second;
        const bool is_running = entry.state == GrammarEntry::State::kRunning;
        std::erase_if(entry.waiters, [&](GrammarWaiter& waiter) {
          if (waiter.deadline > now) {
            next = std::min(next, waiter.deadline);
            return false;
          }
          ++(is_running ? counts.too_slow : counts.busy);
          late.emplace_back(std::move(waiter),
                            is_running
                                ? failed_grammar(GrammarFailure::kTooSlow, too_slow(entry.spec))
                                : failed_grammar(GrammarFailure::kBusy, busy()));
          return true;
        });
        if (entry.state == GrammarEntry::State::kWaiting && entry.waiters.empty()) {
          std::erase(queue, at->first);
          at = entries.erase(at);
        } else {
          ++at;
        }
      }
      if (!late.empty()) {
        lock.unlock();
        for (auto& [waiter, result] : late) waiter.done(std::move(result));
        lock.lock();
        continue;
      }
      const uint64_t seen = num_entered;
      const auto is_changed = [&] { return num_entered != seen; };
      if (next == GrammarClock::time_point::max())
        changed.wait(lock, stop, is_changed);
      else
        changed.wait_until(lock, stop, next, is_changed);
    }
  }

  std::shared_ptr<const GrammarVocabulary> vocabulary;
  const GrammarCompilerConfig config;
  mutable std::mutex mutex;
  std::condition_variable_any changed;
  // Guarded by mutex.
  std::unordered_map<std::string, GrammarEntry> entries;
  std::list<std::string> uses;  // of entries that are ready, the last used first
  std::deque<std::string> queue;
  GrammarCompilerCounts counts;
  uint64_t num_entered = 0;
  int idle = 0;  // threads
  bool is_closed = false;
  std::vector<std::jthread> threads;
};

GrammarCompiler::GrammarCompiler(std::shared_ptr<const GrammarVocabulary> vocabulary,
                                 GrammarCompilerConfig config)
    : parts_(std::make_unique<Parts>(std::move(vocabulary), config)) {}
GrammarCompiler::~GrammarCompiler() = default;

void GrammarCompiler::compile(const GrammarSpec& spec, Done done) {
  if (auto result = parts_->enter(spec, done)) done(std::move(*result));
}

GrammarResult GrammarCompiler::compile(const GrammarSpec& spec) {
  std::promise<GrammarResult> promise;
  auto future = promise.get_future();
  compile(spec, [&](GrammarResult result) { promise.set_value(std::move(result)); });
  return future.get();
}

void GrammarCompiler::clear_cache() {
  const std::lock_guard lock(parts_->mutex);
  for (const std::string& key : parts_->uses) parts_->entries.erase(key);
  parts_->uses.clear();
  parts_->counts.cache_bytes = 0;
}

GrammarCompilerCounts GrammarCompiler::counts() const {
  const std::lock_guard lock(parts_->mutex);
  GrammarCompilerCounts counts = parts_->counts;
  counts.waiting = static_cast<int64_t>(parts_->queue.size());
  counts.cached = static_cast<int64_t>(parts_->uses.size());
  return counts;
}

const GrammarVocabulary& GrammarCompiler::vocabulary() const { return *parts_->vocabulary; }

}  // namespace slime::text
