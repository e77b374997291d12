#pragma once

/// One figure of `slime check`: a difference and the most that it may be, or a fact that is only told.

#include <functional>
#include <string>
#include <vector>

#include "core/json.h"

namespace slime::acceptance {

struct Figure {
  enum class Kind {
    kCompared,  // `value` may be `most`
    kTold,      // "free memory, 139 GiB": nothing to be wrong
    kProblem,   // there is no value: a call failed, a process ended
  };
  std::string section;  // "kernels"
  std::string what;     // "rms_norm bfloat16 129 x 2560"
  Kind kind = Kind::kCompared;
  double value = 0;
  double most = 0;
  std::string text = {};  // of kTold and kProblem
};

/// True for a problem, for a value above its limit and for one that is no number.
bool differs(const Figure& figure);
bool has_difference(const std::vector<Figure>& figures);

json::object to_json(const Figure& figure);
/// Throws ConfigError for an object that is none.
Figure figure_of(const json::object& object);

using Tell = std::function<void(const Figure&)>;

}  // namespace slime::acceptance
