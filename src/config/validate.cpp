#include "config/validate.h"

#include <fmt/format.h>

#include <algorithm>

#include "config/rules.h"

namespace slime::config {

void complete_and_validate(ParsedFlags& flags) {
  RunConfig& config = flags.config;
  Problems problems(flags.problems);
  const bool gives_n =
      std::ranges::find(flags.given, "--n-samples-per-prompt") != flags.given.end();
  if (config.is_preference() && gives_n && config.n_samples_per_prompt != 2) {
    flags.warnings.push_back(
        fmt::format("--n-samples-per-prompt {}: a preference has two responses; 2 is used",
                    config.n_samples_per_prompt));
  }
  choose_dtype(config, problems);
  check_data(config, problems);
  check_built_ins(config, problems);
  check_rollout(config, problems);
  check_rewards(config, problems);
  check_algorithm(config, problems, flags.warnings);
  check_distillation(config, problems);
  check_mismatch(config, problems);
  check_critic(config, problems);
  check_preferences(config, problems);
  check_async(flags, problems);
  check_batches(config, problems);
  check_output(config, problems);
  check_evaluation_runs(flags);
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
  problems.throw_if_any(flags.unknown_notes);
}

}  // namespace slime::config
