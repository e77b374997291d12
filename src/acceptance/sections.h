#pragma once

/// The parts of `slime check`, each of which runs in a process of its own.

#include <functional>
#include <string>
#include <vector>

#include "acceptance/figure.h"

namespace slime::acceptance {

/// "cpu", "cuda" or "hip", and how thorough it is.
struct CheckPlan {
  std::string device = "cpu";
  bool is_quick = false;  // small shapes, few rounds: minutes in the place of an hour
};

/// Names of the sections that this device has, in their order; some come several times: what goes wrong in one process of
/// five is found by ten.
std::vector<std::string> sections_of(const CheckPlan& plan);

/// The section in this process; of "training" see acceptance/tiny_run.h. Throws ConfigError for an unknown name, and
/// where there is no such device.
void run_section(const std::string& name, const CheckPlan& plan, const Tell& tell);

/// All sections by child processes of `program`, and the training. Each figure is told as it comes.
std::vector<Figure> check_device(const std::string& program, const CheckPlan& plan,
                                 const Tell& tell);

}  // namespace slime::acceptance
