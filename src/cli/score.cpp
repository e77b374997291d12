#include "cli/score.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdio>

#include "cli/options.h"
#include "core/error.h"
#include "core/field_reader.h"
#include "core/json_lines.h"
#include "core/reward_number.h"

namespace slime::cli {
namespace {

constexpr std::string_view kScore = "score";  // the field of dapo's records

/// Without a key a record counts by its score.
Expected<double> number_in(const json::value& reward, const std::string& reward_key) {
  const bool has_score = reward.is_object() && reward.get_object().contains(kScore);
  return reward_number(reward, reward_key.empty() && has_score ? std::string(kScore) : reward_key);
}

/// 1 rather than 1E0.
json::value shortest(double number) {
  constexpr double kLargest = 9007199254740992.0;  // 2^53
  if (number == std::trunc(number) && std::abs(number) < kLargest)
    return static_cast<int64_t>(number);
  return number;
}

}  // namespace

json::object score_line(const json::object& line, int64_t ordinal, const Scoring& how,
                        const std::string& where) {
  const FieldReader fields(line, where + ": ");
  if (!line.contains("response")) fields.required().text("response");
  Sample sample;
  sample.ordinal = ordinal;
  sample.prompt = fields.text("prompt").value_or("");
  sample.response = fields.text("response").value_or("");
  if (const json::value* label = line.if_contains("label")) sample.label = *label;
  if (const json::object* metadata = fields.object("metadata")) sample.metadata = *metadata;
  if (const auto problem = reward::type_problem(sample.metadata, how.type, how.config))
    throw ConfigError(fmt::format("{}: {}", where, *problem));
  const Expected<json::value> answer = reward::make_reward(how.type, how.config)(sample);
  if (!answer) return {{"score", nullptr}, {"reason", answer.error().message}};
  const Expected<double> number = number_in(*answer, how.reward_key);
  json::object out;
  out["score"] = number ? shortest(*number) : json::value(nullptr);
  if (answer->is_object()) out["reward"] = *answer;
  if (!number) out["reason"] = number.error().message;
  return out;
}

int score(std::span<const std::string> arguments) {
  std::string file;
  Scoring how;
  reward::RewardConfig& config = how.config;
  double timeout_seconds = 120;
  bool is_original = false;
  CLI::App app(
      "JSON lines {\"response\": ..., \"label\": ..., \"metadata\": {...}} to {\"score\": ...}.",
      "slime score");
  app.add_option(
      "--rm-type", how.type,
      "math, dapo, dapo_box, deepscaler, f1, gpqa, ifbench, random, remote_rm, each also as "
      "boxed_...; a line's metadata.rm_type wins");
  app.add_flag("--no-rm-strict", is_original,
               "grade as the original does, its known holes included (docs/rewards.md)");
  app.add_option("--reward-key", how.reward_key,
                 "field of a reward record; \"score\" if it has one");
  app.add_option("--rm-url", config.url, "server of remote_rm");
  app.add_option("--remote-rm-attempts", config.attempts, "calls of it before a line has failed")
      ->check(CLI::PositiveNumber);
  app.add_option("--reward-timeout-seconds", timeout_seconds,
                 "of a call of it, from connecting to the last byte")
      ->check(finite_range(0.001, 86'400.0))
      ->capture_default_str();
  app.add_option("--seed", config.seed, "of random");
  app.add_option("FILE", file, "input; standard input when it is missing or -");
  if (const auto exit_code = parse_options(app, arguments)) return *exit_code;

  config.grading = is_original ? reward::Grading::kOriginal : reward::Grading::kStrict;
  config.call_timeout = std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::duration<double>(timeout_seconds));
  reward::make_reward(how.type, config);  // refuses a type that does not exist
  if (reward::asks_server({}, how.type) && config.url.empty())
    throw ConfigError(fmt::format("--rm-type {}: needs --rm-url", how.type));
  JsonLines input(file);
  int64_t num_lines = 0, num_scored = 0;
  double sum = 0;
  while (const auto line = input.next()) {
    const json::object answer = score_line(*line, num_lines++, how, input.where());
    if (const json::value& number = answer.at("score"); !number.is_null()) {
      sum += number.to_number<double>();
      ++num_scored;
    }
    write_json_line(answer);
  }
  if (num_lines == 0) {
    throw ConfigError(fmt::format(
        "{}: no lines; each should be {{\"response\": ..., \"label\": ...}}", input.name()));
  }
  std::string summary = fmt::format("{} responses, {} scored", num_lines, num_scored);
  if (num_scored > 0)
    summary += fmt::format(", mean {:.4g}", sum / static_cast<double>(num_scored));
  if (num_scored < num_lines)
    summary += fmt::format(", {} without a score", num_lines - num_scored);
  std::fputs((summary + "\n").c_str(), stderr);
  return num_scored < num_lines ? 1 : 0;
}

}  // namespace slime::cli
