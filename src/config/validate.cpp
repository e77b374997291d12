#include "config/validate.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <variant>

#include "config/flag_table.h"
#include "config/overloaded.h"
#include "config/rules.h"
#include "config/unread_flags.h"
#include "config/users_functions.h"

namespace slime::config {
namespace {

/// More than anybody counts of anything. The rules, and who plans by the flags, multiply up to three
/// of them.
constexpr int64_t kLargestCount = 1'000'000'000;

/// Throws with all that was found so far when a whole number is too large to calculate with.
void check_counts(const ParsedFlags& flags, Problems& problems) {
  const RunConfig& config = flags.config;
  bool is_fine = true;
  const auto look_at = [&](const FlagRow& flag, int64_t value) {
    if (value >= -kLargestCount && value <= kLargestCount) return;
    is_fine = false;
    problems.require(false,
                     fmt::format("{} {}: should be at most {}", flag.name, value, kLargestCount));
  };
  for (const FlagRow& flag : flag_table()) {
    if (flag.status != FlagStatus::kWorks || flag.name.ends_with("seed")) continue;
    if (flag.name == "--update-weight-buffer-size") continue;  // bytes
    std::visit(Overloaded{[&](Flag<int64_t> RunConfig::*member) { look_at(flag, config.*member); },
                          [&](Flag<std::optional<int64_t>> RunConfig::*member) {
                            look_at(flag, (config.*member).value_or(0));
                          },
                          [](auto) {}},
               flag.member);
  }
  if (is_fine && config.rollout_batch_size > 0 &&
      config.n_samples_per_prompt > kLargestCount / config.rollout_batch_size) {
    is_fine = false;
    problems.require(
        false, fmt::format("--rollout-batch-size {} x --n-samples-per-prompt {}: should be at most "
                           "{} samples",
                           config.rollout_batch_size, config.n_samples_per_prompt, kLargestCount));
  }
  if (!is_fine) problems.throw_if_any(flags.unknown_notes);
}

/// Functions of the user's may know what the table does not: they get unknown flags in `args`.
void explain_unknown_flags(ParsedFlags& flags) {
  const RunConfig& config = flags.config;
  constexpr std::string_view kIgnored = " is ignored";
  const bool has_functions = !users_functions(config).empty() ||
                             !config.custom_generate_function_path.empty() ||
                             config.rollout_function_path.find(".py") != std::string::npos;
  for (std::string& warning : flags.warnings) {
    const bool is_unknown =
        std::ranges::find(flags.unknown_notes, warning) != flags.unknown_notes.end();
    const std::size_t at = warning.find(kIgnored);
    if (!is_unknown || at == std::string::npos) continue;
    if (has_functions) {
      warning.replace(at, kIgnored.size(),
                      " is for functions of the user's, as an attribute of `args`");
    } else if (warning.find("--max-turns") != std::string::npos) {
      warning =
          "--max-turns is ignored: turns are drawn by a function of yours, add "
          "--custom-generate-function-path FILE.py (docs/plugins.md)";
    }
  }
}

void apply_rules(ParsedFlags& flags, std::vector<std::string>* absent) {
  RunConfig& config = flags.config;
  Problems problems(flags.problems, absent);
  const bool gives_n = flags.gives("--n-samples-per-prompt");
  if (config.is_preference() && gives_n && config.n_samples_per_prompt != 2) {
    flags.warnings.push_back(
        fmt::format("--n-samples-per-prompt {}: a preference has two responses; 2 is used",
                    config.n_samples_per_prompt));
  }
  check_counts(flags, problems);
  complete_rollout_functions(flags);
  choose_dtype(config, problems);
  check_data(config, problems);
  check_rollout(config, problems);
  check_rewards(config, problems);
  check_algorithm(config, problems, flags.warnings);
  check_distillation(config, problems);
  check_mismatch(config, problems);
  check_critic(config, problems);
  check_preferences(config, problems);
  check_trainer_functions(config, problems);
  check_engine_workers(flags, problems);
  check_weight_publishing(flags, problems);
  check_async(flags, problems);
  check_rollout_functions(flags, problems);
  check_generate(flags, problems);
  check_batches(config, problems);
  check_output(config, problems);
  check_rollout_buffer(flags, problems);
  check_evaluation_runs(flags);
  for (const UsersFunction& each : idle_functions(config)) {
    flags.warnings.push_back(fmt::format(
        "{} {}: has no effect, nothing that calls it happens in this run", each.flag, each.path));
  }
  problems.require(
      config.device != "cpu" || config.sglang_kv_cache_dtype != "fp8_e4m3",
      "--sglang-kv-cache-dtype fp8_e4m3: needs --device cuda; the CPU's attention reads "
      "float32 and bfloat16");
  if (config.device == "cpu" && config.sglang_mem_fraction_static) {
    flags.warnings.push_back(
        fmt::format("--sglang-mem-fraction-static {}: is about a GPU's memory; on the CPU "
                    "--kv-cache-gb counts",
                    *config.sglang_mem_fraction_static));
  }
  for (const std::string& name : flags.without_effect) {
    flags.warnings.push_back(
        fmt::format("{} has no effect: {}", name, reason_of(*find_flag(name), config)));
  }
  problems.throw_if_any(flags.unknown_notes);
  explain_unknown_flags(flags);
  forget_reads(config);
}

}  // namespace

void complete_and_validate(ParsedFlags& flags) { apply_rules(flags, nullptr); }

void complete_and_validate(ParsedFlags& flags, std::vector<std::string>& absent) {
  apply_rules(flags, &absent);
}

}  // namespace slime::config
