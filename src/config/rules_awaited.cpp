// Flags of slime 0.4.0 whose readers are not written yet. Who writes one takes its line off.

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "config/flag_table.h"
#include "config/rules.h"
#include "config/set_flag.h"

namespace slime::config {
namespace {

constexpr std::string_view kAwaited[] = {
    // The objective.
    "--pg-loss-type",
    "--use-score-centering",
    "--score-centering-top-k",
};

}  // namespace

void check_awaited(const ParsedFlags& flags, Problems& problems) {
  const RunConfig defaults;
  for (const std::string_view name : kAwaited) {
    const FlagRow& row = *find_flag(name);
    const json::value value = value_of(row, flags.config);
    const std::string word = value.is_string() ? std::string(value.get_string()) : json_text(value);
    const bool is_as_ever = value == value_of(row, defaults) ||
                            (name == "--pg-loss-type" && word == "ppo" &&
                             flags.config.advantage_estimator.peek() != "cispo");
    problems.require(is_as_ever, fmt::format("{} {}: is not there yet; leave it out", name, word));
  }
}

}  // namespace slime::config
