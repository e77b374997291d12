#include "reward/reward.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "core/error.h"
#include "core/nearest_name.h"
#include "core/random.h"
#include "reward/boxed.h"
#include "reward/graded_text.h"
#include "reward/label.h"
#include "reward/python_text.h"
#include "reward/remote.h"
#include "reward/scores.h"

namespace slime::reward {
namespace {

constexpr std::string_view kBoxed = "boxed_";

/// What a rule may look at. `response` is without end marks. With the prefix boxed_ the rule scores
/// the box: it reads `box`, unless it looks for the last box by itself.
struct Question {
  const Sample& sample;
  std::string_view response;
  bool is_boxed;
  const RewardConfig& config;
  const std::stop_token& stop;

  std::string_view text() const {
    return is_boxed ? extract_answer(response).value_or("") : response;
  }
};

using LabelProblem = std::optional<std::string> (*)(const json::value& label,
                                                    const json::object& metadata, Grading grading);

struct Rule {
  std::string_view name;
  Expected<json::value> (*score)(const Question& question);
  /// What stands around an answer in a response that gives it: "Answer: " and "".
  std::optional<std::pair<std::string_view, std::string_view>> around = std::nullopt;
  LabelProblem label_problem = nullptr;  // of rules whose truth stands elsewhere too
  bool needs_url = false;
};

constexpr std::pair<std::string_view, std::string_view> kInBox{"\\boxed{", "}"};

Expected<json::value> score_remotely(const Question& q) {
  const RemoteReward judge{.url = q.config.url,
                           .num_attempts = q.config.attempts,
                           .timeout = q.config.call_timeout,
                           .seed = q.config.seed};
  if (!q.is_boxed) return ask_judge(judge, q.sample, q.stop);
  Sample boxed = q.sample;
  boxed.response = q.text();
  return ask_judge(judge, boxed, q.stop);
}

constexpr std::array<Rule, 10> kRules{{
    {"dapo",
     [](const Question& q) {
       return q.is_boxed ? score_boxed_dapo(q.response, q.sample.label, q.config.grading)
                         : score_dapo(q.response, q.sample.label, q.config.grading);
     },
     std::pair<std::string_view, std::string_view>{"Answer: ", ""}},
    {"dapo_box", [](const Question& q) { return score_dapo_box(q.response, q.sample.label); },
     kInBox},
    {"deepscaler",
     [](const Question& q) {
       return score_deepscaler(q.response, q.sample.label, q.config.grading, !q.is_boxed);
     },
     std::pair<std::string_view, std::string_view>{"</think>\\boxed{", "}"}},
    {"f1", [](const Question& q) { return score_f1(q.text(), q.sample.label, q.config.grading); },
     std::pair<std::string_view, std::string_view>{"", ""}},
    {"gpqa",
     [](const Question& q) {
       return score_gpqa(q.text(), q.sample.label, q.sample.metadata, q.config.grading);
     },
     std::nullopt, gpqa_label_problem},
    {"gsm8k", [](const Question& q) { return score_gsm8k(q.text(), q.sample.label); },
     std::pair<std::string_view, std::string_view>{"#### ", ""}},
    {"ifbench",
     [](const Question& q) { return score_ifbench(q.text(), q.sample.metadata, q.config.grading); },
     std::nullopt,
     [](const json::value&, const json::object& metadata, Grading grading) {
       return ifbench_label_problem(metadata, grading);
     }},
    {"math",
     [](const Question& q) { return score_math(q.response, q.sample.label, q.config.grading); },
     kInBox},
    {"random",
     [](const Question& q) {
       return Expected<json::value>(score_random(q.config.seed, q.sample.ordinal));
     }},
    {"remote_rm", score_remotely, std::nullopt, nullptr, true},
}};

const Rule* find_rule(std::string_view type) {
  if (type.starts_with(kBoxed)) type.remove_prefix(kBoxed.size());
  const auto* rule = std::find_if(kRules.begin(), kRules.end(),
                                  [type](const Rule& row) { return row.name == type; });
  return rule == kRules.end() ? nullptr : rule;
}

/// "; did you mean boxed_math?" of "boxed_maths".
std::string type_meant_by(std::string_view type) {
  std::vector<std::string> names{"math_verify"};
  for (const Rule& rule : kRules) {
    names.emplace_back(rule.name);
    names.push_back(fmt::format("{}{}", kBoxed, rule.name));
  }
  return did_you_mean(type, std::vector<std::string_view>(names.begin(), names.end()));
}

/// `named` is where the type stands: a flag or a field.
std::string unknown(std::string_view type, std::string_view named = "rm_type") {
  if (type == "math_verify")
    return fmt::format("{} math_verify: is asked for a whole run or file, as --rm-type", named);
  return fmt::format("{}; there are {}, each also with the prefix {}{}",
                     type.empty()
                         ? "no reward type is given (--rm-type, or rm_type in a row's metadata)"
                         : fmt::format("{} {}: unknown", named, type),
                     known_types(), kBoxed, type_meant_by(type));
}

bool scores_above_minimum(const Expected<json::value>& score) {
  if (!score) return false;
  const json::object* record = score->if_object();
  return (record == nullptr ? *score : record->at("score")).to_number<double>() > 0;
}

/// Why no response can be right by the label: the rule cannot use it, or does not take the label
/// itself for an answer. With the original's grading only the first is said.
std::optional<std::string> unreachable(const Rule& rule, bool is_boxed, const json::value& label,
                                       const RewardConfig& config) {
  Sample sample;
  sample.label = label;
  const Expected<json::value> of_nothing = rule.score({sample, "", is_boxed, config, {}});
  if (!of_nothing) return of_nothing.error().message;
  if (config.grading == Grading::kOriginal) return std::nullopt;
  const Expected<std::vector<std::string>> answers = right_answers(label, rule.name);
  if (!answers) return answers.error().message;
  const auto& around = is_boxed ? kInBox : *rule.around;
  const std::string_view before = around.first, after = around.second;
  const bool is_reached = std::ranges::any_of(*answers, [&](std::string_view answer) {
    answer = final_answer(answer);
    const bool has_box = answer.find("\\boxed") != std::string_view::npos;
    const std::string given =
        has_box && after == kInBox.second
            ? fmt::format("{}{}", before.substr(0, before.size() - kInBox.first.size()), answer)
            : fmt::format("{}{}{}", before, answer, after);
    return scores_above_minimum(rule.score({sample, given, is_boxed, config, {}}));
  });
  if (is_reached) return std::nullopt;
  return fmt::format(
      "{}{}: no response can be right by the label {}: the rule does not take it "
      "for an answer to itself",
      is_boxed ? kBoxed : "", rule.name, shown_label(label));
}

/// The sample's own type, or the run's.
std::string_view type_of(const json::object& metadata, std::string_view run_type) {
  const json::value* own = metadata.if_contains("rm_type");
  if (own != nullptr && own->is_string() && !own->get_string().empty())
    return stripped(std::string_view(own->get_string()));
  return run_type;
}

}  // namespace

json::value score_random(uint64_t seed, int64_t sample_ordinal) {
  constexpr uint64_t kKey = 0x72657761726473ULL;  // keeps the draw apart from those of the sampler
  return philox(
             {static_cast<uint32_t>(sample_ordinal), static_cast<uint32_t>(sample_ordinal >> 32), 0,
              0},
             {static_cast<uint32_t>(seed ^ kKey), static_cast<uint32_t>((seed ^ kKey) >> 32)})[0] &
         1U;
}

std::optional<std::string> type_problem(const json::object& metadata, const std::string& run_type,
                                        const RewardConfig& config) {
  const json::value* own = metadata.if_contains("rm_type");
  if (own != nullptr && !own->is_string() && !own->is_null())
    return "rm_type " + json_text(*own) + ": should be a string";
  const std::string_view type = type_of(metadata, stripped(run_type));
  const Rule* rule = find_rule(type);
  if (rule == nullptr) return unknown(type);
  if (rule->needs_url && config.url.empty()) return fmt::format("rm_type {}: needs --rm-url", type);
  return std::nullopt;
}

std::optional<std::string> label_problem(const json::value& label, const json::object& metadata,
                                         const std::string& run_type, const RewardConfig& config) {
  const std::string_view type = type_of(metadata, stripped(run_type));
  const Rule* rule = find_rule(type);
  if (rule == nullptr) return std::nullopt;
  if (rule->label_problem != nullptr) return rule->label_problem(label, metadata, config.grading);
  if (!rule->around) return std::nullopt;
  return unreachable(*rule, type.starts_with(kBoxed), label, config);
}

std::string known_types() {
  std::vector<std::string_view> names;
  for (const Rule& rule : kRules) names.push_back(rule.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

bool asks_server(const json::object& metadata, const std::string& run_type) {
  const Rule* rule = find_rule(type_of(metadata, stripped(run_type)));
  return rule != nullptr && rule->needs_url;
}

bool grades_answers(const json::object& metadata, const std::string& run_type) {
  const Rule* rule = find_rule(type_of(metadata, stripped(run_type)));
  return rule != nullptr && (rule->around || rule->label_problem != nullptr);
}

RewardFn make_reward(const std::string& type, const RewardConfig& config) {
  const std::string run_type(stripped(type));
  if (!run_type.empty() && find_rule(run_type) == nullptr)
    throw ConfigError(unknown(run_type, "--rm-type"));
  return RewardFn([run_type, config](const Sample& sample,
                                     const std::stop_token& stop) -> Expected<json::value> {
    if (const auto problem = type_problem(sample.metadata, run_type, config))
      return failure(*problem);
    const std::string_view name = type_of(sample.metadata, run_type);
    return find_rule(name)->score({sample, graded_text(sample.response, config.end_marks),
                                   name.starts_with(kBoxed), config, stop});
  });
}

}  // namespace slime::reward
