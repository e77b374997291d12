#pragma once

/// Tentative tokens of a request: drawn by fast steps, at the end of Request::tokens, and not verified yet by a
/// step in training arithmetic (docs/decisions/0167-verification.md).
///
///   tokens        [prompt | verified | tentative | of the step in flight]
///   begin                              ^
///   num_computed  up to before the last token; of those, keys up to begin - 1 are of training arithmetic

#include <cstdint>
#include <optional>

#include "engine/stop_checker.h"

namespace slime::engine {

struct Tentative {
  int64_t begin =
      -1;  // index of the first one in Request::tokens; -1: none since the last verification
  bool ends =
      false;  // what came behind them ends the response, or is no token: nothing more is decoded ahead
  std::optional<StopChecker> stop;  // of the request, behind them
  /// Verifications and drops so far: fast steps in flight of an earlier round draw for nobody.
  int64_t round = 0;

  bool is_open() const { return begin >= 0; }
  void close() {
    begin = -1;
    ends = false;
    stop.reset();
    ++round;
  }
};

}  // namespace slime::engine
