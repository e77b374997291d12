#include "config/validate.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>
#include <variant>

#include "config/attributes_in_code.h"
#include "config/engine_groups.h"
#include "config/flag_table.h"
#include "config/foreign_flags.h"
#include "config/megatron_arguments.h"
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
  if (!is_fine) problems.throw_if_any();
}

/// A flag of SGLang's that no row knows, and that its name does not say changes what is computed. One
/// that resembles a flag that acts is misspelt.
bool is_for_engines(const ParsedFlags::Unknown& unknown) {
  if (!unknown.name.starts_with("--sglang-")) return false;
  static constexpr std::string_view kChanges[] = {"quant",   "lora",     "dtype",    "torchao",
                                                  "adapter", "override", "template", "checkpoint"};
  if (std::ranges::any_of(kChanges, [&](std::string_view word) {
        return unknown.name.find(word) != std::string::npos;
      }))
    return false;
  const auto nearest = nearest_flag(unknown.name);
  return !nearest || find_flag(*nearest)->status != FlagStatus::kWorks;
}

/// "--max-turns" -> "max_turns".
std::string attribute_of(const std::string& flag) {
  std::string name = flag.substr(std::min(flag.find_first_not_of('-'), flag.size()));
  std::ranges::replace(name, '-', '_');
  return name;
}

/// Beside functions of the user's: a flag that resembles one of the table, or that is another system's name
/// of one, is misspelt, and the run would train with the default of the flag that was meant; but not where
/// their files mention it. Keys of --custom-config-path are declared to be theirs. Published scripts have
/// names that nobody reads.
bool is_misspelt(const ParsedFlags::Unknown& unknown, const RunConfig& config) {
  return !unknown.hint.empty() && !unknown.is_of_own_file && !config.allow_unknown_flags &&
         (!config.from_launch_script || speaks_of_training(unknown.name)) &&
         !is_in_users_code(config, attribute_of(unknown.name));
}

/// Of Megatron-LM's own parser: refused, or accepted with a note. False where it is none, or may be one of the
/// user's functions.
bool judge_megatron_argument(const ParsedFlags::Unknown& unknown, ParsedFlags& flags,
                             Problems& problems) {
  const RunConfig& config = flags.config;
  const auto argument = megatron_argument(unknown.name);
  if (!argument || unknown.is_of_own_file) return false;
  if (has_users_code(config) && is_in_users_code(config, attribute_of(unknown.name))) return false;
  const bool is_right = argument->takes_values == 0   ? unknown.num_values == 0
                        : argument->takes_values == 1 ? unknown.num_values == 1
                                                      : unknown.num_values > 0;
  if (!is_right) {
    problems.require(
        false, fmt::format("{}{}: takes {}, as Megatron-LM has it", unknown.where, argument->name,
                           argument->takes_values == 0   ? "no value"
                           : argument->takes_values == 1 ? "one value"
                                                         : "one value or more"));
  } else if (argument->is_refused && !config.allow_unknown_flags) {
    problems.require(false, fmt::format("{}{}: {}", unknown.where, argument->name, argument->why));
  } else {
    flags.warnings.push_back(
        fmt::format("{}{} has no effect: {}", unknown.where, argument->name, argument->why));
  }
  return true;
}

/// ", or --hysteresis of Megatron-LM" for a name that resembles nothing else.
std::string hint_of_megatron(const ParsedFlags::Unknown& unknown) {
  if (!unknown.hint.empty()) return "";
  const auto nearest = nearest_megatron_argument(unknown.name);
  return nearest ? fmt::format("; did you mean Megatron-LM's {}?", *nearest) : "";
}

/// An unknown flag stops the run. Functions of the user's may know what the table does not: they get
/// it in `args`. Parsers of published scripts ignore what they do not know, so that scripts have some.
void judge_unknown_flags(ParsedFlags& flags, Problems& problems) {
  const RunConfig& config = flags.config;
  const bool is_for_functions = has_users_code(config);
  std::string_view how_to_go_on = " (--allow-unknown-flags goes on without it)";
  for (const ParsedFlags::Unknown& unknown : flags.unknown_flags) {
    if (judge_megatron_argument(unknown, flags, problems)) continue;
    if (is_for_functions && is_misspelt(unknown, config)) {
      problems.require(
          false,
          fmt::format("{} (no file of your functions mentions {}; --allow-unknown-flags, or a "
                      "key of --custom-config-path, gives it to them all the same)",
                      unknown.text(), attribute_of(unknown.name)));
    } else if (is_for_functions) {
      flags.warnings.push_back(fmt::format(
          "{}unknown flag {} is for functions of the user's, as an attribute of `args`{}",
          unknown.where, unknown.name, unknown.hint));
    } else if (unknown.is_own_key) {
      flags.warnings.push_back(unknown.text() +
                               "; it is for functions of yours, and there are none");
    } else if (is_for_engines(unknown)) {
      flags.warnings.push_back(
          fmt::format("{}unknown flag {}: SGLang may have it, this engine does not; it is ignored",
                      unknown.where, unknown.name));
      flags.ignored.push_back(unknown.name);
    } else if (config.allow_unknown_flags ||
               (config.from_launch_script && !speaks_of_training(unknown.name))) {
      flags.warnings.push_back(unknown.text() + "; it is ignored");
      flags.ignored.push_back(unknown.name);
    } else {
      const bool is_of_turns = unknown.name == "--max-turns";
      problems.require(false,
                       fmt::format("{}{}{}{}", unknown.text(), hint_of_megatron(unknown),
                                   is_of_turns ? "; turns are sampled by a function of yours, "
                                                 "add --custom-generate-function-path "
                                                 "FILE.py (docs/plugins.md)"
                                               : "",
                                   std::exchange(how_to_go_on, "")));
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
  judge_unknown_flags(flags, problems);
  if (config.device == "auto") config.device = "cpu";  // where nobody has looked for a GPU
  check_counts(flags, problems);
  complete_rollout_functions(flags);
  check_data(config, problems);
  check_rollout(config, problems);
  check_rewards(config, problems);
  check_algorithm(config, problems, flags.warnings);
  check_distillation(config, problems);
  const bool grades_labels = !config.rm_type.empty() && !config.has_users_reward() &&
                             config.rm_type != "random" && config.rm_type != "ifbench" &&
                             !config.rm_type.ends_with("remote_rm");
  if (config.use_opd && grades_labels && config.label_key.empty()) {
    flags.warnings.push_back(fmt::format(
        "--rm-type {}: without --label-key every reward is 0, and the teacher alone teaches",
        config.rm_type));
  }
  check_objective(config, problems);
  check_mismatch(config, problems, flags.warnings);
  check_critic(flags, problems);
  check_preferences(config, problems);
  check_rejection(flags, problems);
  check_trainer_functions(config, problems);
  apply_engine_groups(flags, problems);
  check_engine_workers(flags, problems);
  check_weight_publishing(flags, problems);
  check_async(flags, problems);
  check_session(flags, problems);
  check_drafts(flags, problems);
  check_rollout_precision(flags, problems);
  check_on_policy(flags, problems);
  check_adapters(flags, problems);
  check_rollout_functions(flags, problems);
  check_generate(flags, problems);
  check_batches(config, problems);
  check_draft_training(config, problems);
  check_output(flags, problems);
  check_queue(flags, problems);
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
  problems.throw_if_any();
  forget_reads(config);
}

}  // namespace

void complete_and_validate(ParsedFlags& flags) { apply_rules(flags, nullptr); }

void complete_and_validate(ParsedFlags& flags, std::vector<std::string>& absent) {
  apply_rules(flags, &absent);
}

}  // namespace slime::config
