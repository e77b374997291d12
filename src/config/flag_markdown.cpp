// The flag table as docs/flags.md.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <optional>
#include <string>
#include <string_view>

#include "config/flag_table.h"
#include "config/parse_flags.h"

namespace slime::config {
namespace {

/// Every reason, each with where it holds.
std::string all_reasons(const FlagRow& flag) {
  std::string text(flag.meaning);
  for (const ConditionalReason& reason : flag.reasons)
    text += fmt::format("; with {}: {}", reason.where.words, reason.why);
  return text;
}

}  // namespace

std::string flag_markdown() {
  std::string text =
      "# Flags of `slime train`\n\nGenerated from the flag table (`slime train --help-markdown`). "
      "Every flag can also stand in the YAML "
      "file of `--config`, without the dashes.\n";
  std::optional<FlagGroup> group;
  for (const FlagRow& flag : flag_table()) {
    if (flag.group != group) {
      group = flag.group;
      text += fmt::format(
          "\n## {}\n\n| flag | value | default | status | meaning |\n| --- | --- | --- | --- | --- "
          "|\n",
          group_title(flag.group));
    }
    const std::string_view status = flag.status == FlagStatus::kRefused    ? "refused"
                                    : flag.status == FlagStatus::kAccepted ? "accepted, no effect"
                                                                           : "works";
    text +=
        fmt::format("| `{}` | {} | {} | {} | {}{} |\n", flag.name, value_word(flag),
                    default_text(flag), status, all_reasons(flag),
                    flag.choices.empty() ? "" : fmt::format(": {}", fmt::join(flag.choices, ", ")));
  }
  return text;
}

}  // namespace slime::config
