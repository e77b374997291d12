#pragma once

/// Deadlines of operations that a stream carries out later: calls return before anything has
/// happened, so a thread looks whether what was put into streams comes to an end.
///
/// Ranks that wait for one another inside kernels are set free by their transport's abort. What
/// happened is kept, and thrown by the next call of check().
///
/// The watch's thread only queries events and never destroys one: the driver destroys an event under a lock
/// that a thread in a blocking copy holds until its stream has ended, which may be never. Ended events are
/// used again.

#include <c10/core/Device.h>
#include <c10/core/Event.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <list>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

namespace slime::comm {

class StreamWatch final {
 public:
  /// All of them are called on the watch's thread.
  struct Calls {
    std::function<std::string()> problem;  // what the transport knows to be wrong, or nothing
    std::function<void()> abort;           // sets free who waits; once
    /// Unless null: milliseconds in the stream of an operation that has ended.
    std::function<void(double, const char* what)> on_end;
  };
  StreamWatch(c10::Device device, std::chrono::milliseconds timeout, Calls calls);
  ~StreamWatch();
  StreamWatch(const StreamWatch&) = delete;
  StreamWatch& operator=(const StreamWatch&) = delete;

  /// Operations under way, by when they began.
  struct Operation {
    std::function<std::string()> where;  // begins the message
    const char* what;
    std::chrono::steady_clock::time_point begin;
    std::optional<c10::Event> start;  // before it in its stream, where times are wanted
    std::optional<c10::Event> event;  // behind it; none: it is being put there
    c10::StreamId stream = 0;
  };
  using Ticket = std::list<Operation>::iterator;

  /// An operation is about to be put into the current stream; the clock runs from here.
  Ticket begin(std::function<std::string()> where, const char* what);
  /// It is in the stream now.
  void launched(Ticket ticket);
  /// It could not be put there, or is being recorded.
  void dropped(Ticket ticket);

  /// Throws GroupError when an operation failed or was late.
  void check();

 private:
  c10::Event record(const c10::Stream& stream);
  void watch(const std::stop_token& stop);
  /// Takes out what has ended; the message of what is late.
  std::string look();
  void reuse(Operation& operation);  // its events; holds mutex_

  const c10::Device device_;
  const std::chrono::milliseconds timeout_;
  const Calls calls_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::list<Operation> under_way_;  // guarded by mutex_
  std::vector<c10::Event> free_;    // guarded by mutex_; for the next operations
  std::string failure_;             // guarded by mutex_
  std::jthread thread_;
};

}  // namespace slime::comm
