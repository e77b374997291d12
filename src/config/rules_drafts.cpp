// --rollout-drafts, and the flags of SGLang's that say the same.

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <string>
#include <string_view>

#include "config/flag_rows.h"
#include "config/rules.h"

namespace slime::config {
namespace {

constexpr std::string_view kSpeculation = "--sglang-speculative-algorithm";
constexpr std::string_view kNumTokens = "--sglang-speculative-num-draft-tokens";
constexpr std::string_view kNumSteps = "--sglang-speculative-num-steps";
constexpr std::string_view kTopk = "--sglang-speculative-eagle-topk";
constexpr int64_t kMostDrafts = 15;
constexpr int64_t kMostTextMib = int64_t{1} << 20;

std::string in_capitals(std::string word) {
  std::ranges::transform(word, word.begin(), [](unsigned char c) { return std::toupper(c); });
  return word;
}

/// "--rollout-drafts suffix", or SGLang's flag that means it.
std::string drafts_said(const ParsedFlags& flags) {
  return flags.gives("--rollout-drafts") ? "--rollout-drafts suffix"
                                         : fmt::format("{} NGRAM", kSpeculation);
}

/// Flags of published scripts whose draft model is not computed here.
void tell_no_draft_model(ParsedFlags& flags) {
  for (const std::string_view flag : {kSpeculation, kNumTokens, kNumSteps, kTopk}) {
    if (flags.gives(flag))
      flags.warnings.push_back(fmt::format("{} has no effect: {}", flag, kNoDraftModel));
  }
}

/// NGRAM is --rollout-drafts suffix. Others change time alone, so that they are left out.
void apply_algorithm(ParsedFlags& flags, Problems& problems) {
  RunConfig& config = flags.config;
  const std::string algorithm = in_capitals(config.sglang_speculative_algorithm.get());
  if (algorithm == "NGRAM") {
    problems.require(config.has_drafts() || !flags.gives("--rollout-drafts"),
                     fmt::format("--rollout-drafts none and {} NGRAM: choose one", kSpeculation));
    config.rollout_drafts.stems_from(config.sglang_speculative_algorithm);
    config.rollout_drafts = "suffix";
  } else if (!config.has_drafts()) {
    tell_no_draft_model(flags);
  } else if (!algorithm.empty() && algorithm != "NONE") {
    flags.warnings.push_back(fmt::format("{} {} has no effect: {}", kSpeculation,
                                         config.sglang_speculative_algorithm, kNoDraftModel));
  }
}

/// Why the engines of this run verify no drafts; empty: they do.
std::string why_no_drafts(const RunConfig& config) {
  if (config.has_external_engines())
    return "the servers of --rollout-external-engine-addrs draft by their own command lines "
           "(slime serve --speculative-algorithm NGRAM)";
  if (config.is_on_gpus())
    return "drafts are verified on CPUs so far; on a GPU the same responses are drawn token by "
           "token";
  return "";
}

/// Of all flags that say how many drafts there are.
void apply_counts(ParsedFlags& flags, Problems& problems) {
  RunConfig& config = flags.config;
  const auto bound = [&](std::string_view flag, int64_t value, int64_t least, int64_t most) {
    problems.require(value >= least && value <= most,
                     fmt::format("{} {}: should be between {} and {}", flag, value, least, most));
  };
  std::string said;  // which flag said it first
  const auto take = [&](std::string_view flag, const Flag<std::optional<int64_t>>& value,
                        int64_t surplus) {
    if (!value.get()) return;
    const std::string words = fmt::format("{} {}", flag, *value.get());
    const int64_t drafts = *value.get() - surplus;
    bound(flag, *value.get(), 1 + surplus, kMostDrafts + surplus);
    problems.require(said.empty() || config.rollout_draft_tokens == drafts,
                     fmt::format("{} and {}: choose one", said, words));
    if (!said.empty()) return;
    said = words;
    config.rollout_draft_tokens = drafts;
  };
  take("--rollout-draft-tokens", config.rollout_draft_tokens, 0);
  // SGLang counts the last known token, which is computed with the drafts.
  take(kNumTokens, config.sglang_speculative_num_draft_tokens, 1);
  take(kNumSteps, config.sglang_speculative_num_steps, 0);
  problems.require(config.sglang_speculative_eagle_topk.value_or(1) == 1,
                   fmt::format("{} {}: guesses are one chain; use 1, or leave it out", kTopk,
                               config.sglang_speculative_eagle_topk.value_or(1)));
  bound("--rollout-draft-text-mb", config.rollout_draft_text_mb, 1, kMostTextMib);
  config.rollout_draft_tokens.stems_from(config.sglang_speculative_num_draft_tokens);
  config.rollout_draft_tokens.stems_from(config.sglang_speculative_num_steps);
  config.rollout_drafts.stems_from(config.sglang_speculative_eagle_topk);
}

}  // namespace

void check_drafts(ParsedFlags& flags, Problems& problems) {
  RunConfig& config = flags.config;
  if (!config.generates()) return;
  apply_algorithm(flags, problems);
  if (!config.has_drafts()) return;
  apply_counts(flags, problems);
  if (const std::string why = why_no_drafts(config); !why.empty()) {
    flags.warnings.push_back(fmt::format("{} has no effect: {}", drafts_said(flags), why));
    config.rollout_drafts = "none";
    return;
  }
  // Functions of the user's that count drafts ask `args` for this name.
  config.given_aliases["sglang_speculative_algorithm"] = "NGRAM";
}

}  // namespace slime::config
