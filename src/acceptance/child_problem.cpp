#include "acceptance/child_problem.h"

#include <fmt/format.h>

#include <cstring>

#include "core/error.h"

namespace slime::acceptance {

std::string problem_of_child(const ChildPlan& plan) {
  const ChildEnd end = run_child(plan);
  switch (end.how) {
    case ChildEnd::How::kNotStarted:
      throw ConfigError(fmt::format("no child process: {}", std::strerror(end.number)));
    case ChildEnd::How::kTimedOut:
      return fmt::format("took more than {} s",
                         std::chrono::floor<std::chrono::seconds>(*plan.patience).count());
    case ChildEnd::How::kPrintedTooMuch:
      return "printed a line that is no figure";
    case ChildEnd::How::kSignalled:
      return fmt::format("ended by signal {}", end.number);
    case ChildEnd::How::kExited:
      break;
  }
  return end.number == 0 ? "" : fmt::format("exit code {}", end.number);
}

}  // namespace slime::acceptance
