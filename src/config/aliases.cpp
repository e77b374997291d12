#include "config/aliases.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

namespace slime::config {
namespace {

/// Without the dashes, as users' functions know it: "max_weight_staleness".
std::string attribute_of(std::string_view name) {
  std::string attribute(name.substr(2));
  std::ranges::replace(attribute, '-', '_');
  return attribute;
}

std::string text_of(const std::string& name, const std::string& word) {
  return word.empty() ? name : name + " " + word;
}

/// The row as if it had the type of the flag that it stands for.
FlagRow typed(const FlagRow& row) {
  FlagRow typed = row;
  if (!row.alias.same_as.empty()) {
    typed.member = row.alias.value_member();
    if (row.alias.convert == nullptr && typed.choices.empty())
      typed.choices = find_flag(row.alias.same_as)->choices;
  } else if (row.alias.is_switch()) {
    typed.member = &RunConfig::dry_run;
  }
  return typed;
}

/// The value of the flag as it is, for messages.
std::string value_text(const FlagRow& row, const RunConfig& config) {
  const json::value value = value_of(row, config);
  return value.is_string() ? std::string(value.get_string()) : json_text(value);
}

void set_meant(ParsedFlags& parsed, const FlagRow& row, const std::string& said,
               std::string_view flag, std::string word) {
  const FlagRow& target = *find_flag(flag);
  if (row.alias.yields && parsed.gives(flag)) return;
  const auto other = parsed.said_by_alias.find(flag);
  const bool is_own = other != parsed.said_by_alias.end() && !parsed.gives(flag) &&
                      (other->second + " ").starts_with(std::string(row.name) + " ");
  const std::string before =
      parsed.says(flag) ? parsed.how_said(flag, value_text(target, parsed.config)) : "";
  const json::value old = value_of(target, parsed.config);
  Setting setting{.name = std::string(flag), .values = {}, .where = ""};
  if (!word.empty()) setting.values.push_back(std::move(word));
  if (const auto wrong = set_flag(target, setting, false, parsed.config)) {
    parsed.problems.push_back(fmt::format("{}: {}", said, *wrong));
    return;
  }
  if (!before.empty() && !is_own && value_of(target, parsed.config) != old)
    parsed.problems.push_back(fmt::format("{} and {}: choose one", before, said));
  parsed.said_by_alias.insert_or_assign(std::string(flag), said);
}

double number_of(const std::string& value) {
  double number = 0;
  std::from_chars(value.data(), value.data() + value.size(), number);
  return number;
}

constexpr double kMost = 1e6;

}  // namespace

void note_alias(ParsedFlags& parsed, const FlagRow& row, const Setting& setting) {
  RunConfig scratch;
  const std::string prefix = setting.where.empty() ? "" : setting.where + ": ";
  if (const auto wrong = set_flag(typed(row), setting, false, scratch)) {
    parsed.problems.push_back(prefix + *wrong);
    return;
  }
  const std::string name(row.name);
  std::erase_if(parsed.pending_aliases, [&](const auto& each) { return each.first == name; });
  parsed.config.given_aliases.erase(attribute_of(name));
  const bool is_switch = row.alias.is_switch();
  if (is_switch && !scratch.dry_run.peek()) return;  // `bf16: false` in a file
  const std::string word = is_switch ? "" : setting.values.front();
  parsed.pending_aliases.emplace_back(name, word);
  parsed.config.given_aliases[attribute_of(name)] = word;
}

void resolve_aliases(ParsedFlags& parsed) {
  for (const auto& [name, word] : std::exchange(parsed.pending_aliases, {})) {
    const FlagRow& row = *find_flag(name);
    const Alias& alias = row.alias;
    const std::string said = text_of(name, word);
    if (!alias.same_as.empty()) {
      set_meant(parsed, row, said, alias.same_as,
                alias.convert == nullptr ? word : alias.convert(word, parsed));
      continue;
    }
    const auto meaning =
        std::ranges::find(alias.words, word, [](const auto& each) { return each.first; });
    for (const FlagAndWord& each : meaning->second)
      set_meant(parsed, row, said, each.flag, std::string(each.word));
  }
}

std::string whole_updates(const std::string& value, ParsedFlags& parsed) {
  const double threshold = number_of(value), whole = std::floor(std::clamp(threshold, 0.0, kMost));
  if (threshold < 0 || threshold > kMost) {
    parsed.problems.push_back(
        fmt::format("--staleness-threshold {}: should be between 0 and 1000000", value));
  } else if (whole != threshold) {
    parsed.warnings.push_back(fmt::format(
        "--staleness-threshold {}: the bound is in updates, so it is {}", value, whole));
  }
  return fmt::format("{}", static_cast<int64_t>(whole));
}

std::string whole_rollouts(const std::string& value, ParsedFlags& parsed) {
  const double factor = number_of(value);
  if (factor < 1 || factor > kMost)
    parsed.problems.push_back(
        fmt::format("--async-data-buffer-capacity-factor {}: should be at least 1", value));
  return fmt::format("{}", static_cast<int64_t>(std::clamp(std::floor(factor), 1.0, kMost)));
}

std::string rollouts_of_samples(const std::string& value, ParsedFlags& parsed) {
  const RunConfig& config = parsed.config;
  const auto count = [](int64_t size) { return std::clamp<int64_t>(size, 1, 1'000'000'000); };
  const int64_t of_a_rollout =
      count(config.rollout_batch_size) * count(config.n_samples_per_prompt);
  const auto samples = static_cast<int64_t>(std::clamp(number_of(value), -1e18, 1e18));
  if (samples < of_a_rollout)
    parsed.problems.push_back(fmt::format(
        "--fully-async-max-completed-samples {}: should be at least the {} of a rollout", value,
        of_a_rollout));
  return fmt::format("{}", std::max<int64_t>(samples / of_a_rollout, 1));
}

std::string dumps_in_folder(const std::string& value, ParsedFlags& /*parsed*/) {
  return value + "/rollout_data/{rollout_id}.jsonl";
}

}  // namespace slime::config
