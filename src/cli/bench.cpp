#include "cli/bench.h"

#include <fmt/format.h>

#include "cli/sibling.h"
#include "core/error.h"

namespace slime::cli {

int bench(std::span<const std::string> arguments) {
  become_sibling("slime-bench", arguments);
  throw ConfigError(
      fmt::format("there is no {}: the measurements are a program of their own, which `./dev build "
                  "release slime-bench` builds in a clone of the repository",
                  sibling_path("slime-bench")));
}

}  // namespace slime::cli
