#pragma once

/// Gate for calls into a library, which keeps an abort apart from those that are beginning on other threads.
///
/// NCCL's abort gives a communicator's memory back. It may come while a call waits for other ranks
/// inside the library, which it sets free; but a call that has just begun would find memory that is
/// gone. So calls go through a gate: once it is closed none begins any more, and whoever aborts
/// waits for those inside, for a bounded time.

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace slime::comm {

class CallGate {
 public:
  /// A call, as long as it lives. `is_open` false: the gate was closed; do not call.
  class Pass {
   public:
    explicit Pass(CallGate& gate) : gate_(gate), is_open(gate.enter()) {}
    Pass(const Pass&) = delete;
    Pass& operator=(const Pass&) = delete;
    ~Pass() {
      if (is_open) gate_.leave();
    }

   private:
    CallGate& gate_;

   public:
    const bool is_open;
  };

  /// No call begins from now on. True: none is inside either; false: some still are after `patience`.
  bool close(std::chrono::milliseconds patience) {
    std::unique_lock lock(mutex_);
    is_closed_ = true;
    return changed_.wait_for(lock, patience, [this] { return num_inside_ == 0; });
  }

 private:
  bool enter() {
    const std::lock_guard lock(mutex_);
    if (is_closed_) return false;
    ++num_inside_;
    return true;
  }
  void leave() {
    {
      const std::lock_guard lock(mutex_);
      --num_inside_;
    }
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_closed_ = false;  // guarded by mutex_
  int64_t num_inside_ = 0;  // the same
};

}  // namespace slime::comm
