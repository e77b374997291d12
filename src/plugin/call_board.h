#pragma once

/// The board of calls of one plug-in host: memory that the host writes and the program reads, also
/// when the host has died (python/slime/host/board.py has the layout).
///
/// It says which functions have begun, since when, and which call each thread of the host executes,
/// so whose fault a death was is known without calling anything again. It also keeps answers that
/// the host has not sent yet. The bytes are a stranger's: whatever they are, reading them is safe.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/json.h"
#include "net/frame_channel.h"
#include "plugin/shared_memory.h"

namespace slime::plugin {

class CallBoard final {
 public:
  using Steady = std::chrono::steady_clock;

  CallBoard();

  int descriptor() const { return memory_.descriptor(); }
  /// What the host is told with its configuration.
  json::object layout() const;

  /// Where a call stands; nothing: there is no room for another one.
  std::optional<int> take_slot();
  void release_slot(int slot);

  /// How long the function of call `id` has run; nothing: it has not begun. Time in which other
  /// calls held the event loop for longer than a twentieth of a second at a stretch does not count.
  std::optional<std::chrono::duration<double>> time_of(int64_t id, int slot,
                                                       Steady::time_point now) const;
  /// How long call `id` has held the event loop, or the thread for functions of a whole step, without
  /// a pause: neither can be interrupted. Zero: it does not.
  std::chrono::duration<double> holds_for(int64_t id, Steady::time_point now) const;
  /// Calls that any thread of the host executes, each once.
  std::vector<int64_t> executing() const;

  /// Frames of answers that may not have been sent: of a host that has died. Ends at the first that
  /// is not whole.
  std::vector<net::Frame> unsent_answers() const;

  // For tests, which play the host.
  int64_t word(std::size_t index) const;
  void set_word(std::size_t index, int64_t value);
  std::byte* outbox_for_tests();

 private:
  SharedMemory memory_;
  std::vector<int> free_slots_;
};

}  // namespace slime::plugin
