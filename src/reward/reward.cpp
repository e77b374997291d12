#include "reward/reward.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "core/error.h"
#include "core/random.h"
#include "reward/boxed.h"
#include "reward/python_text.h"
#include "reward/remote.h"
#include "reward/scores.h"

namespace slime::reward {
namespace {

constexpr std::string_view kBoxed = "boxed_";

/// What a rule may look at. `response` is the sample's, or what its last box holds.
struct Question {
  const Sample& sample;
  std::string_view response;
  const RewardConfig& config;
  const std::stop_token& stop;
};

using LabelProblem = std::optional<std::string> (*)(const json::value& label,
                                                    const json::object& metadata, Grading grading);

struct Rule {
  std::string_view name;
  Expected<json::value> (*score)(const Question& question);
  LabelProblem label_problem = nullptr;  // null: it needs no label, or somebody else judges it
  bool needs_url = false;
};

constexpr std::array<Rule, 9> kRules{{
    {"dapo",
     [](const Question& q) { return score_dapo(q.response, q.sample.label, q.config.grading); },
     [](const json::value& label, const json::object&, Grading) {
       return dapo_label_problem(label);
     }},
    {"dapo_box", [](const Question& q) { return score_dapo_box(q.response, q.sample.label); },
     [](const json::value& label, const json::object&, Grading) {
       return dapo_box_label_problem(label);
     }},
    {"deepscaler",
     [](const Question& q) {
       return score_deepscaler(q.response, q.sample.label, q.config.grading);
     },
     [](const json::value& label, const json::object&, Grading grading) {
       return deepscaler_label_problem(label, grading);
     }},
    {"f1", [](const Question& q) { return score_f1(q.response, q.sample.label, q.config.grading); },
     [](const json::value& label, const json::object&, Grading grading) {
       return f1_label_problem(label, grading);
     }},
    {"gpqa",
     [](const Question& q) {
       return score_gpqa(q.response, q.sample.label, q.sample.metadata, q.config.grading);
     },
     gpqa_label_problem},
    {"ifbench",
     [](const Question& q) {
       return score_ifbench(q.response, q.sample.metadata, q.config.grading);
     },
     [](const json::value&, const json::object& metadata, Grading grading) {
       return ifbench_label_problem(metadata, grading);
     }},
    {"math",
     [](const Question& q) { return score_math(q.response, q.sample.label, q.config.grading); },
     [](const json::value& label, const json::object&, Grading grading) {
       return math_label_problem(label, grading);
     }},
    {"random",
     [](const Question& q) {
       return Expected<json::value>(score_random(q.config.seed, q.sample.ordinal));
     }},
    {"remote_rm",
     [](const Question& q) {
       return ask_judge({.url = q.config.url,
                         .num_attempts = q.config.attempts,
                         .timeout = q.config.call_timeout,
                         .seed = q.config.seed},
                        q.sample, q.stop);
     },
     nullptr, true},
}};

const Rule* find_rule(std::string_view type) {
  if (type.starts_with(kBoxed)) type.remove_prefix(kBoxed.size());
  const auto* rule = std::find_if(kRules.begin(), kRules.end(),
                                  [type](const Rule& row) { return row.name == type; });
  return rule == kRules.end() ? nullptr : rule;
}

/// `named` is where the type stands: a flag or a field.
std::string unknown(std::string_view type, std::string_view named = "rm_type") {
  std::vector<std::string_view> names;
  for (const Rule& rule : kRules) names.push_back(rule.name);
  return fmt::format("{}; there are {}, each also with the prefix {}",
                     type.empty()
                         ? "no reward type is given (--rm-type, or rm_type in a row's metadata)"
                         : fmt::format("{} {}: unknown", named, type),
                     fmt::join(names, ", "), kBoxed);
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
  const Rule* rule = find_rule(type_of(metadata, stripped(run_type)));
  if (rule == nullptr || rule->label_problem == nullptr) return std::nullopt;
  return rule->label_problem(label, metadata, config.grading);
}

bool asks_server(const json::object& metadata, const std::string& run_type) {
  const Rule* rule = find_rule(type_of(metadata, stripped(run_type)));
  return rule != nullptr && rule->needs_url;
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
    std::string_view response = sample.response;
    if (name.starts_with(kBoxed)) response = extract_answer(response).value_or("");
    return find_rule(name)->score({sample, response, config, stop});
  });
}

}  // namespace slime::reward
