// --rollout-drafts, and the flags of SGLang's that say the same.

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "config/flag_rows.h"
#include "config/rules.h"
#include "core/draft_words.h"

namespace slime::config {
namespace {

constexpr std::string_view kSpeculation = "--sglang-speculative-algorithm";
constexpr std::string_view kNumTokens = "--sglang-speculative-num-draft-tokens";
constexpr std::string_view kNumSteps = "--sglang-speculative-num-steps";
constexpr std::string_view kTopk = "--sglang-speculative-eagle-topk";
constexpr int64_t kMostTextMib = int64_t{1} << 20;

/// "--rollout-drafts suffix", or SGLang's flag that means it.
std::string drafts_said(const ParsedFlags& flags) {
  const RunConfig& config = flags.config;
  return flags.gives("--rollout-drafts")
             ? fmt::format("--rollout-drafts {}", config.rollout_drafts)
             : fmt::format("{} {}", kSpeculation, config.sglang_speculative_algorithm);
}

/// Flags of published scripts whose draft model is not computed here.
void tell_no_draft_model(ParsedFlags& flags) {
  for (const std::string_view flag : {kSpeculation, kNumTokens, kNumSteps, kTopk}) {
    if (flags.gives(flag))
      flags.warnings.push_back(fmt::format("{} has no effect: {}", flag, kNoDraftModel));
  }
}

/// NGRAM is --rollout-drafts suffix, EAGLE and NEXTN are mtp. Others change time alone, so that they are left out.
void apply_algorithm(ParsedFlags& flags, Problems& problems) {
  RunConfig& config = flags.config;
  const Flag<std::string>& given = config.sglang_speculative_algorithm;
  const DraftWord word = draft_word_of(given.get());
  const bool says_drafts = flags.gives("--rollout-drafts");
  const auto has_no_effect = [&](std::string_view why) {
    flags.warnings.push_back(fmt::format("{} {} has no effect: {}", kSpeculation, given, why));
  };
  if (word == DraftWord::kTexts || (word == DraftWord::kLayer && !says_drafts)) {
    problems.require(!says_drafts || config.names_texts(),
                     fmt::format("--rollout-drafts {} and {} NGRAM: choose one",
                                 config.rollout_drafts, kSpeculation));
    config.rollout_drafts.stems_from(given);
    if (!says_drafts) config.rollout_drafts = word == DraftWord::kTexts ? "suffix" : "mtp";
  } else if (word == DraftWord::kLayer) {
    if (!config.names_draft_layer())
      has_no_effect(
          fmt::format("--rollout-drafts {} says what is drafted from", config.rollout_drafts));
  } else if (!config.has_drafts()) {
    tell_no_draft_model(flags);
  } else if (word == DraftWord::kOther) {
    has_no_effect(kNoDraftModel);
  }
}

void tell_of_noise(ParsedFlags& flags) {
  if (flags.config.rollout_noise == "prompt" &&
      !flags.config.custom_generate_function_path.get().empty()) {
    flags.warnings.emplace_back(
        "--rollout-noise prompt has no effect on requests that --custom-generate-function-path "
        "writes: their "
        "random numbers are those of their sampling_seed");
  }
}

/// Why the engines of this run verify no drafts; empty: they do.
std::string why_no_drafts(const RunConfig& config) {
  if (config.has_external_engines())
    return "the servers of --rollout-external-engine-addrs draft by their own command lines "
           "(slime serve --speculative-algorithm NGRAM or NEXTN)";
  if (config.is_on_gpus())
    return "drafts are verified on CPUs so far; on a GPU the same responses are drawn token by "
           "token";
  return "";
}

/// Why the engines of this run do not compute the model's draft layer; empty: they do, where it has one.
std::string why_no_layer(const RunConfig& config) {
  if (config.trains_adapters())
    return "engines of adapters compute the model without its draft layer";
  if (config.has_codes())
    return "with --rollout-precision fp8 engines compute the model without its draft layer";
  if (config.has_engines_over_ranks())
    return "engines over the ranks that train compute the model without its draft layer; those of "
           "--num-engine-workers compute it";
  if (config.takes_requests) return "trainers by requests have engines without draft layers";
  return "";
}

/// Leaves the draft layer out with a note, and keeps other sources.
void apply_layer(ParsedFlags& flags) {
  RunConfig& config = flags.config;
  const std::string why = config.names_draft_layer() ? why_no_layer(config) : "";
  if (why.empty()) return;
  if (config.names_texts()) {
    flags.warnings.push_back(
        fmt::format("{}: guesses come from texts alone: {}", drafts_said(flags), why));
    config.rollout_drafts = "suffix";
    return;
  }
  flags.warnings.push_back(fmt::format("{} has no effect: {}", drafts_said(flags), why));
  config.rollout_drafts = "none";
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
  const int64_t topk = config.sglang_speculative_eagle_topk.value_or(1);
  const bool has_tree =
      topk != 1 && draft_word_of(config.sglang_speculative_algorithm.get()) == DraftWord::kLayer;
  if (has_tree) {
    flags.warnings.push_back(
        fmt::format("{} {}: guesses are one chain, of {}", kTopk, topk, kNumSteps));
    config.rollout_draft_tokens.stems_from(config.sglang_speculative_num_draft_tokens);
  } else {
    // SGLang counts the last known token, which is computed with the drafts.
    take(kNumTokens, config.sglang_speculative_num_draft_tokens, 1);
  }
  take(kNumSteps, config.sglang_speculative_num_steps, 0);
  problems.require(
      has_tree || topk == 1,
      fmt::format("{} {}: guesses are one chain; use 1, or leave it out", kTopk, topk));
  bound("--rollout-draft-text-mb", config.rollout_draft_text_mb, 1, kMostTextMib);
  config.rollout_draft_tokens.stems_from(config.sglang_speculative_num_draft_tokens);
  config.rollout_draft_tokens.stems_from(config.sglang_speculative_num_steps);
  config.rollout_drafts.stems_from(config.sglang_speculative_eagle_topk);
}

}  // namespace

void check_drafts(ParsedFlags& flags, Problems& problems) {
  RunConfig& config = flags.config;
  if (!config.generates()) return;
  tell_of_noise(flags);
  apply_algorithm(flags, problems);
  if (!config.has_drafts()) return;
  if (const std::string why = why_no_drafts(config); !why.empty()) {
    flags.warnings.push_back(fmt::format("{} has no effect: {}", drafts_said(flags), why));
    config.rollout_drafts = "none";
    return;
  }
  apply_layer(flags);
  if (!config.has_drafts()) return;
  apply_counts(flags, problems);
  // Functions of the user's that count drafts ask `args` for this name.
  config.given_aliases["sglang_speculative_algorithm"] =
      config.names_draft_layer() ? "EAGLE" : "NGRAM";
}

}  // namespace slime::config
