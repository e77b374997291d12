#pragma once

/// `slime bench hand-over` and `slime bench sleep-wake`: what it costs that trainer and engine of
/// one GPU take turns.

#include <span>
#include <string>

namespace slime::cli {

/// New weights to the engine, which reads the trainer's: milliseconds from the trainer's last
/// update until the engine may serve. Prints a JSON line, returns the exit code.
int bench_hand_over(std::span<const std::string> arguments);

/// The cache of keys and values gives its memory back and takes it again: seconds of both together.
int bench_sleep_wake(std::span<const std::string> arguments);

}  // namespace slime::cli
