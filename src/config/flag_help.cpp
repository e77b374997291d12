// The flag table as text: --help and docs/flags.md.

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

std::string status_note(const FlagRow& flag) {
  switch (flag.status) {
    case FlagStatus::kWorks:
    case FlagStatus::kAlias:
      return std::string(flag.meaning);
    case FlagStatus::kAccepted:
      return fmt::format("(no effect: {})", all_reasons(flag));
    case FlagStatus::kRefused:
      return fmt::format("(refused: {})", flag.meaning);
  }
  return {};
}

}  // namespace

std::string flag_help() {
  std::string text;
  std::optional<FlagGroup> group;
  for (const FlagRow& flag : flag_table()) {
    if (flag.group != group) {
      group = flag.group;
      text += fmt::format("\n{}\n", group_title(flag.group));
    }
    const std::string left = fmt::format("{} {}", flag.name, value_word(flag));
    text += fmt::format("  {:<44} {}", left, status_note(flag));
    if (!flag.choices.empty()) text += fmt::format(": {}", fmt::join(flag.choices, ", "));
    const std::string fallback = default_text(flag);
    if (flag.status == FlagStatus::kWorks && !fallback.empty())
      text += fmt::format(" [{}]", fallback);
    text += '\n';
  }
  return text;
}

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
