#include "golden_flags.h"

#include <fmt/format.h>

#include <algorithm>

#include "config/parse_flags.h"
#include "config/validate.h"
#include "core/error.h"
#include "setup/train_config.h"

namespace slime::golden {
namespace {

std::string flag_of(std::string_view param) {
  std::string flag = "--" + std::string(param);
  std::ranges::replace(flag, '_', '-');
  return flag;
}

std::string text_of(const json::value& value) {
  if (value.is_string()) return std::string(value.get_string());
  return value.is_double() ? fmt::format("{}", value.get_double()) : json::serialize(value);
}

}  // namespace

Words words_of(const json::object& params, std::initializer_list<std::string_view> others) {
  Words words;
  for (const auto& [key, value] : params) {
    const std::string_view param = key;
    if (value.is_null() || std::ranges::find(others, param) != others.end()) continue;
    if (param == "rewards_normalization" || param == "grpo_std_normalization") {
      // The original's attributes of the flags that turn them off.
      if (!value.as_bool()) words.push_back("--disable-" + flag_of(param).substr(2));
    } else if (!value.is_bool()) {
      words.push_back(flag_of(param));
      words.push_back(text_of(value));
    } else if (value.as_bool()) {
      words.push_back(flag_of(param));
    }
  }
  return words;
}

Setup setup_of(const Words& words, const Words& more) {
  Words all = {"--hf-checkpoint",
               SLIME_SOURCE_DIR,
               "--prompt-data",
               "prompts.jsonl",
               "--num-rollout",
               "1",
               "--rollout-batch-size",
               "2",
               "--n-samples-per-prompt",
               "2",
               "--rollout-max-response-len",
               "8"};
  all.insert(all.end(), words.begin(), words.end());
  all.insert(all.end(), more.begin(), more.end());
  if (std::ranges::find(all, "--use-opd") == all.end())
    all.insert(all.end(), {"--rm-type", "random"});
  // Samples of the goldens are there, as those of a dump are: groups of one are not sampled.
  if (config::parse_flags(all).config.n_samples_per_prompt == 1)
    all.insert(all.end(), {"--load-debug-rollout-data", "{rollout_id}.jsonl"});
  config::ParsedFlags parsed = config::parse_flags(all);
  if (!parsed.warnings.empty()) throw ConfigError(parsed.warnings);
  config::complete_and_validate(parsed);
  Setup setup{.flags = parsed.config,
              .train = setup::make_train_config(parsed.config, 1),
              .batch = setup::make_batch_config(parsed.config)};
  train::check_config(setup.train);
  return setup;
}

}  // namespace slime::golden
