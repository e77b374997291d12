#include "cli/score.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <utility>
#include <vector>

#include "cli/options.h"
#include "cli/score_function.h"
#include "cli/score_lines.h"
#include "config/parse_flags.h"
#include "config/users_functions.h"
#include "core/error.h"
#include "core/json_lines.h"
#include "core/secret_urls.h"
#include "net/http_client.h"
#include "reward/kept_rows.h"

namespace slime::cli {
namespace {

/// Of a look at whether the server is there, before the first line.
constexpr std::chrono::seconds kConnectTimeout{10};

/// Lines that are read before the first is scored by a function: its calls run beside one another.
constexpr std::size_t kBatch = 256;

/// Words behind "--" are flags of a run, which the function finds in `args`; they are taken off.
std::vector<std::string> take_run_flags(std::vector<std::string>& words) {
  const auto sign = std::ranges::find(words, "--");
  if (sign == words.end()) return {};
  std::vector<std::string> flags(sign + 1, words.end());
  words.erase(sign, words.end());
  return flags;
}

/// Behind "--" the command's own flags would say nothing to it, and to the function something else.
void refuse_own_flags(const CLI::App& app, const std::vector<std::string>& run_flags) {
  std::vector<std::string> problems;
  for (const std::string& word : run_flags) {
    std::string name = word.substr(0, word.find('='));
    std::ranges::replace(name, '_', '-');
    if (name.starts_with('-') && app.get_option_no_throw(name) != nullptr)
      problems.push_back(fmt::format("{}: is a flag of slime score; write it before --", name));
  }
  if (!problems.empty()) throw ConfigError(problems);
}

/// The user's function, or math-verify; null: a rule scores.
std::unique_ptr<ScoreFunction> function_of(config::ParsedFlags parsed, double timeout_seconds) {
  if (!parsed.problems.empty())
    throw ConfigError(fmt::format("{}", fmt::join(parsed.problems, "\n")));
  config::RunConfig& flags = parsed.config;
  const bool is_users = !flags.custom_rm_path.peek().empty();
  if (!is_users && !config::names_math_verify(flags.rm_type.peek())) return nullptr;
  const std::string path =
      is_users ? flags.custom_rm_path.peek() : std::string(config::kMathVerifyReward);
  const bool takes_groups = is_users && flags.group_rm.peek();
  return std::make_unique<ScoreFunction>(ScoreFunctionConfig{.path = path,
                                                             .flags = std::move(flags),
                                                             .own_flags = std::move(parsed.unknown),
                                                             .timeout_seconds = timeout_seconds,
                                                             .takes_groups = takes_groups,
                                                             .shows_what_it_says = is_users});
}

/// Of the lines of a batch; none where rules score.
std::vector<Expected<json::value>> rewards_of(ScoreFunction* function,
                                              const std::vector<ScoreLine>& lines) {
  if (function == nullptr) return {};
  std::vector<Sample> samples;
  for (const ScoreLine& line : lines) {
    samples.push_back(reward::sample_of_record(line.record, line.ordinal, line.where));
    samples.back().group = line.group;
  }
  return function->score(samples);
}

}  // namespace

int score(std::span<const std::string> arguments) {
  std::string file;
  reward::Scoring how;
  reward::RewardConfig& config = how.config;
  double timeout_seconds = 120;
  std::string path, python = "python3";
  bool is_original = false, takes_groups = false;
  CLI::App app(
      "JSON lines {\"response\": ..., \"label\": ..., \"metadata\": {...}} to {\"score\": ...}.\n\n"
      "  slime score --rm-type math responses.jsonl\n"
      "  slime score --custom-rm-path my_reward.py responses.jsonl -- FLAGS FOR ITS args",
      "slime score");
  app.add_option(
      "--rm-type", how.type,
      "math, dapo, dapo_box, deepscaler, f1, gpqa, gsm8k, ifbench, random, remote_rm, each also "
      "as boxed_...; a line's metadata.rm_type wins; math_verify asks the package of that name");
  app.add_option("--custom-rm-path", path,
                 "a function of yours in place of a rule, called as in training: FILE.py, "
                 "FILE.py:NAME or MODULE.NAME (docs/plugins.md)");
  app.add_flag("--group-rm", takes_groups,
               "call it once for the lines of a prompt, which follow one another");
  app.add_flag("--no-rm-strict", is_original,
               "grade as the original does, its known holes included (docs/rewards.md)");
  app.add_option("--reward-key", how.reward_key,
                 "field of a reward record; \"score\" if it has one");
  app.add_option("--rm-url", config.url, "server of remote_rm");
  app.add_option("--remote-rm-attempts", config.attempts, "calls of it before a line has failed")
      ->check(CLI::PositiveNumber);
  app.add_option("--reward-timeout-seconds", timeout_seconds,
                 "of a call of it, from connecting to the last byte, or of a function")
      ->check(finite_range(0.001, 86'400.0))
      ->capture_default_str();
  app.add_option("--plugin-python", python,
                 "interpreter of --custom-rm-path, and of math_verify, which has that package")
      ->capture_default_str();
  app.add_option("--seed", config.seed, "of random");
  bool are_rows = false;
  reward::KeepRule keep;
  app.add_flag("--rows", are_rows,
               "write each line again, with its score: rows for slime train "
               "(docs/rejection_sampling.md)");
  app.add_option("--min-score", keep.min_score,
                 "rows: write those with this score or a higher one");
  app.add_option("--keep-best", keep.best,
                 "rows: write at most N of a prompt, those with the highest scores")
      ->check(CLI::PositiveNumber);
  app.add_flag("--keep-truncated", keep.keeps_truncated,
               "rows: choose among responses that were cut off too");
  app.add_option("FILE", file, "input; standard input when it is missing or -");
  std::vector<std::string> words(arguments.begin(), arguments.end());
  const std::vector<std::string> run_flags = take_run_flags(words);
  if (const auto exit_code = parse_options(app, words)) return *exit_code;
  refuse_own_flags(app, run_flags);

  if (!are_rows && (keep.chooses() || keep.keeps_truncated))
    throw ConfigError("--min-score, --keep-best, --keep-truncated: need --rows");
  config.grading = is_original ? reward::Grading::kOriginal : reward::Grading::kStrict;
  config.call_timeout = std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::duration<double>(timeout_seconds));
  if (takes_groups && path.empty()) throw ConfigError("--group-rm: needs --custom-rm-path");
  if (!run_flags.empty() && path.empty())
    throw ConfigError("-- FLAGS: are for a function; needs --custom-rm-path");
  config::ParsedFlags parsed = config::parse_flags(run_flags);
  config::RunConfig& flags = parsed.config;
  flags.rm_type = how.type;
  flags.custom_rm_path = path;
  flags.group_rm = takes_groups;
  flags.reward_key = how.reward_key;
  flags.rm_url = config.url;
  flags.plugin_python = python;
  if (is_original) flags.no_rm_strict = true;
  if (app.count("--remote-rm-attempts") > 0) flags.remote_rm_attempts = config.attempts;
  if (app.count("--reward-timeout-seconds") > 0) flags.reward_timeout_seconds = timeout_seconds;
  if (app.count("--seed") > 0) flags.seed = static_cast<int64_t>(config.seed);
  const std::unique_ptr<ScoreFunction> function = function_of(std::move(parsed), timeout_seconds);
  if (!function) reward::make_reward(how.type, config);  // refuses a type that does not exist
  if (!function && reward::asks_server({}, how.type) && config.url.empty())
    throw ConfigError(fmt::format("--rm-type {}: needs --rm-url", how.type));
  // Each line would ask a server that is not there again and again, for minutes.
  const bool may_ask = how.type.empty() || reward::asks_server({}, how.type);
  if (may_ask && !config.url.empty()) {
    if (const auto problem = net::why_unreachable(config.url, kConnectTimeout))
      throw ConfigError("--rm-url: " + without_passwords(problem->message));
  }
  JsonLines input(file);
  ScoreLines batches(input, function ? kBatch : 1, takes_groups);
  int64_t num_lines = 0, num_scored = 0;
  double sum = 0;
  reward::KeptRows rows(keep, [](const json::object& row) { write_json_line(row); });
  for (auto lines = batches.next(); !lines.empty(); lines = batches.next()) {
    const std::vector<Expected<json::value>> rewards = rewards_of(function.get(), lines);
    for (std::size_t i = 0; i < lines.size(); ++i, ++num_lines) {
      ScoreLine& line = lines[i];
      if (function) how.judge = [&reward = rewards[i]](const Sample&) { return reward; };
      const json::object answer = reward::score_record(line.record, line.ordinal, how, line.where);
      if (const json::value& number = answer.at("score"); !number.is_null()) {
        sum += number.to_number<double>();
        ++num_scored;
      }
      if (are_rows) {
        for (const auto& each : answer) line.record[each.key()] = each.value();
        rows.add(std::move(line.record), line.where);
      } else {
        write_json_line(answer);
      }
    }
  }
  rows.end();
  if (num_lines == 0) {
    throw ConfigError(fmt::format(
        "{}: no lines; each should be {{\"response\": ..., \"label\": ...}}", input.name()));
  }
  std::string summary = fmt::format("{} responses, {} scored", num_lines, num_scored);
  if (num_scored > 0)
    summary += fmt::format(", mean {:.4g}", sum / static_cast<double>(num_scored));
  if (num_scored < num_lines)
    summary += fmt::format(", {} without a score", num_lines - num_scored);
  if (keep.chooses()) summary += fmt::format("; {} rows kept", rows.num_kept());
  if (rows.num_truncated() > 0)
    summary += fmt::format(", {} were truncated (--keep-truncated)", rows.num_truncated());
  std::fputs((summary + "\n").c_str(), stderr);
  return num_scored < num_lines ? 1 : 0;
}

}  // namespace slime::cli
