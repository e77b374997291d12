#include "cli/bench.h"

#include <fmt/format.h>

#include <cstdio>

#include "cli/bench_engine.h"

namespace slime::cli {

int bench(std::span<const std::string> arguments) {
  if (!arguments.empty() && arguments[0] == "engine") return bench_engine(arguments.subspan(1));
  const bool asks = !arguments.empty() && (arguments[0] == "--help" || arguments[0] == "-h");
  fmt::print(asks ? stdout : stderr,
             "Usage: slime bench NAME [OPTIONS]\n\n  engine   generation: tokens per second, step "
             "times, rates\n");
  return asks ? 0 : 2;
}

}  // namespace slime::cli
