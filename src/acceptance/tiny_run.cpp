#include "acceptance/tiny_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <limits>
#include <utility>

#include "acceptance/child_problem.h"
#include "acceptance/tiny_model.h"
#include "core/error.h"
#include "core/json.h"

namespace slime::acceptance {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLoss = "train/loss";
constexpr const char* kGradNorm = "train/grad_norm";
constexpr const char* kDifference = "train/train_rollout_logprob_abs_diff";

/// A step of some hundred tokens takes well under a second; libraries that load or compile for a device take minutes.
constexpr std::chrono::seconds kPatienceOfARun{1200};

class Runs {
 public:
  Runs(const TinyRuns& runs, const TinyShape& shape, Tell tell)
      : runs_(runs), shape_(shape), tell_(std::move(tell)) {
    name_ = fmt::format("heads of {}", shape.head_dim);
    write_tiny_model(model(), shape);
    write_tiny_rows(rows(), 64);
  }

  void compare_with_float64(const std::string& dtype, double most) {
    const int64_t steps = runs_.is_quick ? 4 : 20;
    const fs::path exact = supervised("cpu", "float64", steps),
                   run = supervised(runs_.device, dtype, steps);
    if (exact.empty() || run.empty()) return;
    for (const char* metric : {kLoss, kGradNorm})
      tell_figure(fmt::format("supervised {}, {}: {}, worst of {} steps beside the CPU in float64",
                              dtype, name_, metric, steps),
                  worst_difference(metric_in(run, metric), metric_in(exact, metric)), most);
  }

  void compare_log_probs(const std::string& dtype, double most) {
    const int64_t steps = runs_.is_quick ? 2 : 20;
    const fs::path run = with_rollouts(dtype, steps);
    if (run.empty()) return;
    const std::vector<double> differences = metric_in(run, kDifference);
    tell_figure(
        fmt::format(
            "rollouts {}, {}: mean difference of log-probs between engine and trainer, worst of "
            "{} steps",
            dtype, name_, steps),
        static_cast<int64_t>(differences.size()) == steps
            ? *std::ranges::max_element(differences)
            : std::numeric_limits<double>::quiet_NaN(),
        most);
  }

 private:
  fs::path model() const { return runs_.folder / fmt::format("model-{}", shape_.head_dim); }
  fs::path rows() const { return runs_.folder / "rows.jsonl"; }

  void tell_figure(std::string what, double value, double most) const {
    tell_({.section = "training", .what = std::move(what), .value = value, .most = most});
  }

  /// Relative, of numbers at the same step; NaN where there are not as many.
  static double worst_difference(const std::vector<double>& a, const std::vector<double>& exact) {
    if (a.size() != exact.size() || a.empty()) return std::numeric_limits<double>::quiet_NaN();
    double worst = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
      const double difference = std::abs(a[i] - exact[i]) / std::max(1e-3, std::abs(exact[i]));
      if (!(difference <= worst)) worst = difference;
    }
    return worst;
  }

  fs::path supervised(const std::string& device, const std::string& dtype, int64_t steps) {
    return train(fmt::format("supervised-{}-{}", device, dtype), device, dtype, steps,
                 {"--input-key", "messages", "--rollout-function-path",
                  "slime.rollout.sft_rollout.generate_rollout", "--loss-type", "sft_loss",
                  "--debug-train-only", "--calculate-per-token-loss", "--rollout-batch-size", "16",
                  "--global-batch-size", "16"});
  }

  fs::path with_rollouts(const std::string& dtype, int64_t steps) {
    return train(fmt::format("rollouts-{}-{}", runs_.device, dtype), runs_.device, dtype, steps,
                 {"--input-key", "prompt", "--label-key", "label", "--apply-chat-template",
                  "--rm-type", "random", "--rollout-batch-size", "4", "--n-samples-per-prompt", "4",
                  "--global-batch-size", "16", "--rollout-max-response-len", "64",
                  "--use-dynamic-batch-size", "--max-tokens-per-gpu", "2048"});
  }

  /// metrics.jsonl of the run; empty, and a problem is told, where it failed.
  fs::path train(const std::string& run, const std::string& device, const std::string& dtype,
                 int64_t steps, const std::vector<std::string>& more) {
    const std::string name = fmt::format("{}-{}", run, shape_.head_dim);
    const fs::path folder = runs_.folder / name, log = runs_.folder / (name + ".log");
    if (fs::exists(folder / "metrics.jsonl"))
      return folder / "metrics.jsonl";  // of another comparison
    std::vector<std::string> words{runs_.program,
                                   "train",
                                   "--hf-checkpoint",
                                   model().string(),
                                   "--prompt-data",
                                   rows().string(),
                                   "--run-dir",
                                   folder.string(),
                                   "--device",
                                   device,
                                   "--dtype",
                                   dtype,
                                   "--num-rollout",
                                   std::to_string(steps),
                                   "--lr",
                                   "1e-4",
                                   "--lr-decay-style",
                                   "constant",
                                   "--seed",
                                   "1"};
    words.insert(words.end(), more.begin(), more.end());
    const std::string problem = problem_of_child({.words = words,
                                                  .patience = kPatienceOfARun,
                                                  .error_log = log,
                                                  .on_line = [&log](const std::string& line) {
                                                    std::ofstream(log, std::ios::app)
                                                        << line << "\n";
                                                  }});
    if (problem.empty()) return folder / "metrics.jsonl";
    tell_({.section = "training",
           .what = fmt::format("slime train, {}", name),
           .kind = Figure::Kind::kProblem,
           .text = problem});
    return {};
  }

  const TinyRuns& runs_;
  const TinyShape shape_;
  const Tell tell_;
  std::string name_;
};

}  // namespace

std::vector<double> metric_in(const fs::path& metrics, const std::string& name) {
  std::ifstream file(metrics);
  if (!file) throw ConfigError(fmt::format("{}: cannot be read", metrics.string()));
  std::vector<double> values;
  for (std::string line; std::getline(file, line);) {
    const json::value row = parse_json(line, metrics.string());
    const json::value* value = row.is_object() ? row.as_object().if_contains(name) : nullptr;
    if (value != nullptr && value->is_number()) values.push_back(value->to_number<double>());
  }
  return values;
}

void check_training(const TinyRuns& runs, const Tell& tell) {
  std::vector<TinyShape> shapes{TinyShape{}};
  if (!runs.is_quick) shapes.push_back({.heads = 8, .kv_heads = 2, .head_dim = 128});
  for (const TinyShape& shape : shapes) {
    Runs here(runs, shape, tell);
    // Sums of float32 in another order; products of a GPU's tensor cores truncate what they add.
    const bool is_on_cpu = runs.device == "cpu";
    here.compare_with_float64("float32", is_on_cpu ? 1e-4 : 1e-3);
    here.compare_log_probs("float32", is_on_cpu ? 1e-5 : 1e-4);
    if (is_on_cpu) continue;
    here.compare_with_float64("bfloat16", 0.1);
    here.compare_log_probs("bfloat16", 0.02);
  }
}

}  // namespace slime::acceptance
