#pragma once

/// A reward function as the rollout sees it: a finished sample in, a score out.
///
/// Native rewards (math, dapo, f1, ...) and, later, users' Python functions and remote judges
/// implement it. A verifier that fails or runs out of time is a third outcome, never a silent 0.

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "core/expected.h"
#include "core/sample.h"
#include "reward/grading.h"

namespace slime::reward {

/// Scores one sample. Pure: may run on any thread, many at once. The value is a number or a record
/// such as
/// {"score": 1.0, "acc": true, "pred": "42"}. A reward that waits for a server gives up, with an
/// error, when `stop` is requested.
class RewardFn {
 public:
  using Function =
      std::function<Expected<json::value>(const Sample& sample, const std::stop_token& stop)>;

  explicit RewardFn(Function score) : score_(std::move(score)) {}
  Expected<json::value> operator()(const Sample& sample, const std::stop_token& stop = {}) const {
    return score_(sample, stop);
  }

 private:
  Function score_;
};

/// What some types need besides the sample.
struct RewardConfig {
  uint64_t seed = 0;      // the run's, for "random" and for waits
  std::string url;        // of "remote_rm"
  int64_t attempts = 10;  // calls of it before the sample has failed
  std::chrono::milliseconds call_timeout{120'000};
  Grading grading = Grading::kStrict;
  std::vector<std::string> end_marks;  // of the model's turns (reward/graded_text.h)
};

/// `type` is --rm-type: "math", "dapo", "dapo_box", "deepscaler", "f1", "gpqa", "gsm8k", "ifbench",
/// "random", "remote_rm", each also with the prefix "boxed_", which scores what the last box holds; a
/// sample's metadata.rm_type wins over it (spec 16.1), and with an empty `type` every sample needs
/// one. Throws ConfigError with the list of known names for an unknown one. All but the judge of
/// remote_rm see graded_text of the response.
RewardFn make_reward(const std::string& type, const RewardConfig& config = {});

/// Why samples with this metadata cannot be scored, for whoever reads the data before they are
/// generated: the type is unknown or not a string, there is none, or it needs a server and there is
/// no url. Nothing: they can, if the label is one that the type can use.
std::optional<std::string> type_problem(const json::object& metadata, const std::string& run_type,
                                        const RewardConfig& config);

/// The same of their label, or of what stands for it in the metadata: it is missing, or no response
/// could be right by it. Strictly the rule is asked: a response that gives the label as its answer
/// has to score. Nothing when type_problem has something to say.
std::optional<std::string> label_problem(const json::value& label, const json::object& metadata,
                                         const std::string& run_type, const RewardConfig& config);

/// "dapo, dapo_box, ...": the names that make_reward knows, without the prefix.
std::string known_types();

/// Whether a rule compares an answer with the label of samples with this metadata, so that
/// RewardConfig::grading counts.
bool grades_answers(const json::object& metadata, const std::string& run_type);

/// Whether a server gives the score of samples with this metadata.
bool asks_server(const json::object& metadata, const std::string& run_type);

}  // namespace slime::reward
