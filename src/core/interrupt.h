#pragma once

/// Reaction to Ctrl-C: the first time abandon what is sampled, or finish the training under way, and save; the
/// second time stop now. SIGTERM is the same, so that a scheduler's grace of some seconds is enough.
/// The end of the terminal (SIGHUP) is a first time only, however often it is told, and nothing under nohup.
///
/// Nothing is lost either way: checkpoints are committed by renaming, so stopping at once loses at
/// most the work since the last one.

#include <atomic>
#include <string>

namespace slime::core {

/// Handlers of SIGINT, SIGTERM and SIGHUP, from the first object of the process until the last is gone. Runs of
/// one process have one each: a signal is for all of them.
class Interrupt {
 public:
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  /// True once a signal came: end the step under way, save, leave with kExitCode.
  const std::atomic<bool>& requested() const;
  /// The same for whoever has no object. Any thread.
  static bool came() { return flag().load(); }
  static const std::atomic<bool>& flag();
  /// While a display redraws the terminal it says what the first signal has to say: words that are
  /// written behind its back are erased by its next frame.
  static void leave_words_to_a_display(bool is_there);
  /// For the display: those words, once; empty: none.
  static std::string take_words();

  /// What a second signal does, where the step cannot be finished: a user's function does not return.
  [[noreturn]] static void stop_now(const std::string& why);

  int exit_code() const { return requested().load() ? kExitCode : 0; }
  /// What the shell expects of a program ended by Ctrl-C.
  static constexpr int kExitCode = 130;
};

}  // namespace slime::core
