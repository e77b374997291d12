#include "cli/score.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <future>
#include <optional>

#include "cli/options.h"
#include "config/users_functions.h"
#include "core/error.h"
#include "core/json_lines.h"
#include "core/secret_urls.h"
#include "core/temporary_folder.h"
#include "net/http_client.h"
#include "plugin/hosts.h"
#include "plugin/reward.h"
#include "reward/kept_rows.h"

namespace slime::cli {
namespace {

/// Of a look at whether the server is there, before the first line.
constexpr std::chrono::seconds kConnectTimeout{10};

/// math-verify in a plug-in host, whose log lies in a folder of its own as long as it runs.
class ReferencePackage {
 public:
  ReferencePackage(const std::string& python, double timeout_seconds)
      : timeout_(timeout_seconds),
        hosts_({.python = python,
                .logs = logs_.path(),
                .flags = {{"rm_type", "math_verify"}},
                .hooks = {{"reward", std::string(config::kMathVerifyReward)}}}) {}

  Expected<json::value> score(const Sample& sample) {
    std::promise<Expected<Sample>> scored;
    plugin::score(hosts_, 0, timeout_, sample, {},
                  [&scored](Expected<Sample> answer) { scored.set_value(std::move(answer)); });
    const Expected<Sample> answer = scored.get_future().get();
    if (!answer) return tl::make_unexpected(answer.error());
    return answer->reward;
  }

 private:
  const std::chrono::duration<double> timeout_;
  const TemporaryFolder logs_{"slime-score"};  // it outlives the host
  plugin::Hosts hosts_;
};

}  // namespace

int score(std::span<const std::string> arguments) {
  std::string file;
  reward::Scoring how;
  reward::RewardConfig& config = how.config;
  double timeout_seconds = 120;
  std::string python = "python3";
  bool is_original = false;
  CLI::App app(
      "JSON lines {\"response\": ..., \"label\": ..., \"metadata\": {...}} to {\"score\": ...}.",
      "slime score");
  app.add_option(
      "--rm-type", how.type,
      "math, dapo, dapo_box, deepscaler, f1, gpqa, gsm8k, ifbench, random, remote_rm, each also "
      "as boxed_...; a line's metadata.rm_type wins; math_verify asks the package of that name");
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
  app.add_option("--plugin-python", python, "interpreter that has the package, for math_verify")
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
  if (const auto exit_code = parse_options(app, arguments)) return *exit_code;

  if (!are_rows && (keep.chooses() || keep.keeps_truncated))
    throw ConfigError("--min-score, --keep-best, --keep-truncated: need --rows");
  config.grading = is_original ? reward::Grading::kOriginal : reward::Grading::kStrict;
  config.call_timeout = std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::duration<double>(timeout_seconds));
  std::optional<ReferencePackage> package;
  if (config::names_math_verify(how.type)) {
    package.emplace(python, timeout_seconds);
    how.judge = [&package](const Sample& sample) { return package->score(sample); };
  } else {
    reward::make_reward(how.type, config);  // refuses a type that does not exist
  }
  if (reward::asks_server({}, how.type) && config.url.empty())
    throw ConfigError(fmt::format("--rm-type {}: needs --rm-url", how.type));
  // Each line would ask a server that is not there again and again, for minutes.
  const bool may_ask = how.type.empty() || reward::asks_server({}, how.type);
  if (may_ask && !config.url.empty()) {
    if (const auto problem = net::why_unreachable(config.url, kConnectTimeout))
      throw ConfigError("--rm-url: " + without_passwords(problem->message));
  }
  JsonLines input(file);
  int64_t num_lines = 0, num_scored = 0;
  double sum = 0;
  reward::KeptRows rows(keep, [](const json::object& row) { write_json_line(row); });
  while (auto line = input.next()) {
    const json::object answer = reward::score_record(*line, num_lines++, how, input.where());
    if (const json::value& number = answer.at("score"); !number.is_null()) {
      sum += number.to_number<double>();
      ++num_scored;
    }
    if (are_rows) {
      for (const auto& each : answer) (*line)[each.key()] = each.value();
      rows.add(*std::move(line), input.where());
    } else {
      write_json_line(answer);
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
