#include "evaluate/comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "core/error.h"

namespace slime::evaluate {
namespace {

/// With fewer a sign test finds nothing at 5 %, and a bootstrap's interval is too narrow.
constexpr int64_t kFewestPairs = 6;

/// Note at the end of a row without a significant difference.
std::string doubt_of(const SetDifference& set) {
  if (set.num_pairs < kFewestPairs)
    return fmt::format("  may be chance: fewer than {} pairs", kFewestPairs);
  const Interval& interval = set.difference.interval;
  return interval.low > 0 || interval.high < 0 ? "" : "  may be chance: the interval holds 0";
}

/// Of pairs (first, second).
using Pairs = std::vector<std::pair<double, double>>;

Pairs pairs_of(const SetResult& first, const SetResult& second) {
  std::multimap<std::string, double> others;
  for (const PromptResult& prompt : second.prompts) others.emplace(prompt.key, prompt.mean);
  Pairs pairs;
  for (const PromptResult& prompt : first.prompts) {
    const auto found = others.find(prompt.key);
    if (found == others.end()) continue;
    pairs.emplace_back(prompt.mean, found->second);
    others.erase(found);
  }
  return pairs;
}

SetDifference difference_of(const std::string& name, const Pairs& pairs) {
  SetDifference set{.name = name, .num_pairs = static_cast<int64_t>(pairs.size())};
  std::vector<PromptSum> differences;
  for (const auto& [one, other] : pairs) {
    set.first += one / static_cast<double>(pairs.size());
    set.second += other / static_cast<double>(pairs.size());
    set.num_better += other > one ? 1 : 0;
    set.num_worse += other < one ? 1 : 0;
    differences.push_back({.sum = other - one});
  }
  set.difference = bootstrap_mean(differences);
  return set;
}

}  // namespace

std::vector<SetResult> read_result(const std::string& file) {
  const json::value result = read_json_file(file);
  const json::value* sets = result.is_object() ? result.get_object().if_contains("sets") : nullptr;
  if (sets == nullptr || !sets->is_array())
    throw ConfigError(fmt::format("{}: is no result of slime eval --json", file));
  std::vector<SetResult> read;
  for (const json::value& set : sets->get_array()) read.push_back(set_from_json(set, file));
  return read;
}

std::vector<SetDifference> compare(const std::vector<SetResult>& first,
                                   const std::vector<SetResult>& second) {
  std::vector<SetDifference> differences;
  Pairs all;
  int64_t unpaired = 0;
  for (const SetResult& one : first) {
    const auto other = std::ranges::find(second, one.name, &SetResult::name);
    if (other == second.end()) continue;
    const Pairs pairs = pairs_of(one, *other);
    const auto rest =
        static_cast<int64_t>(one.prompts.size() + other->prompts.size() - 2 * pairs.size());
    unpaired += rest;
    if (pairs.empty()) continue;
    differences.push_back(difference_of(one.name, pairs));
    differences.back().num_unpaired = rest;
    all.insert(all.end(), pairs.begin(), pairs.end());
  }
  if (differences.empty())
    throw ConfigError(
        "the results have no prompt in common: sets are paired by their names, prompts by their "
        "content");
  if (differences.size() > 1) {
    differences.push_back(difference_of("all", all));
    differences.back().num_unpaired = unpaired;
  }
  return differences;
}

std::vector<std::string> unpaired_sets(const std::vector<SetResult>& first,
                                       const std::vector<SetResult>& second,
                                       const std::vector<SetDifference>& differences) {
  std::vector<std::string> names;
  for (const auto* result : {&first, &second})
    for (const SetResult& set : *result)
      if (std::ranges::find(differences, set.name, &SetDifference::name) == differences.end() &&
          std::ranges::find(names, set.name) == names.end())
        names.push_back(set.name);
  return names;
}

json::array to_json(const std::vector<SetDifference>& differences) {
  json::array list;
  for (const SetDifference& set : differences) {
    list.push_back(json::object{{"name", set.name},
                                {"num_pairs", set.num_pairs},
                                {"num_better", set.num_better},
                                {"num_worse", set.num_worse},
                                {"num_unpaired", set.num_unpaired},
                                {"first", set.first},
                                {"second", set.second},
                                {"difference", set.difference.value},
                                {"low", set.difference.interval.low},
                                {"high", set.difference.interval.high}});
  }
  return list;
}

std::string table_of(const std::vector<SetDifference>& differences) {
  std::size_t width = 8;
  for (const SetDifference& set : differences) width = std::max(width, set.name.size());
  std::string text =
      fmt::format("{:<{}} {:>8} {:>8} {:>8} {:>10}  {:<19} {:>7} {:>7}\n", "set", width, "pairs",
                  "first", "second", "difference", "95 %", "better", "worse");
  for (const SetDifference& set : differences) {
    const Interval& interval = set.difference.interval;
    text += fmt::format("{:<{}} {:>8} {:>8.4f} {:>8.4f} {:>+10.4f}  {:<19} {:>7} {:>7}{}\n",
                        set.name, width, set.num_pairs, set.first, set.second, set.difference.value,
                        fmt::format("{:+.4f} - {:+.4f}", interval.low, interval.high),
                        set.num_better, set.num_worse, doubt_of(set));
    if (set.num_unpaired > 0)
      text += fmt::format("{:<{}} {:>8} prompts are in one result alone\n", "", width,
                          set.num_unpaired);
  }
  return text;
}

}  // namespace slime::evaluate
