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

/// A directory that is not the model's own, in which DeepSeek's scripts find its layer.
bool has_draft_model(const RunConfig& config) {
  const std::string& path = config.rollout_draft_model.peek();
  return !path.empty() && path != config.hf_checkpoint.peek();
}

DraftWord word_of(const RunConfig& config, const std::string& algorithm) {
  return draft_word_of(algorithm, has_draft_model(config));
}

bool names_source(const RunConfig& config, DraftWord word) {
  if (word == DraftWord::kTexts) return config.names_texts();
  return word == DraftWord::kLayer ? config.names_draft_layer() : config.names_draft_model();
}

/// NGRAM is --rollout-drafts suffix, EAGLE and NEXTN are mtp, EAGLE3 and EAGLE with a model are eagle3. Others change
/// time alone, so that they are left out.
void apply_algorithm(ParsedFlags& flags, Problems& problems) {
  RunConfig& config = flags.config;
  const Flag<std::string>& given = config.sglang_speculative_algorithm;
  const DraftWord word = word_of(config, given.get());
  const bool says_drafts = flags.gives("--rollout-drafts");
  const auto has_no_effect = [&](std::string_view why) {
    flags.warnings.push_back(fmt::format("{} {} has no effect: {}", kSpeculation, given, why));
  };
  const bool is_computed = word == DraftWord::kLayer || word == DraftWord::kModel;
  if (word == DraftWord::kTexts || (is_computed && !says_drafts)) {
    problems.require(!says_drafts || config.names_texts(),
                     fmt::format("--rollout-drafts {} and {} NGRAM: choose one",
                                 config.rollout_drafts, kSpeculation));
    config.rollout_drafts.stems_from(given);
    if (says_drafts) return;
    config.rollout_drafts = word == DraftWord::kTexts   ? "suffix"
                            : word == DraftWord::kLayer ? "mtp"
                                                        : "eagle3";
  } else if (is_computed && names_source(config, word)) {
    config.rollout_drafts.stems_from(given);
  } else if (is_computed) {
    has_no_effect(
        fmt::format("--rollout-drafts {} says what is drafted from", config.rollout_drafts));
  } else if (word == DraftWord::kOther && config.has_drafts()) {
    has_no_effect(kNoDraftModel);
  } else if (word == DraftWord::kOther) {
    tell_no_draft_model(flags);
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
           "(slime serve --speculative-algorithm NGRAM, NEXTN or EAGLE3)";
  return "";
}

/// Why the engines of this run do without the draft layer or model that it names; empty: they compute it, the layer
/// where the model has one.
std::string why_nothing_foretells(const RunConfig& config) {
  const bool is_model = config.names_draft_model();
  const std::string_view without =
      is_model ? "compute no draft model" : "compute the model without its draft layer";
  if (config.is_on_gpus())
    return fmt::format("no draft {} on GPUs yet: engines there {}", is_model ? "model" : "layer",
                       is_model ? "compute the model alone" : without);
  if (config.trains_adapters()) return fmt::format("engines of adapters {}", without);
  if (config.has_codes()) return fmt::format("with --rollout-precision fp8 engines {}", without);
  if (config.has_engines_over_ranks())
    return fmt::format("engines over the ranks that train {}; those of --num-engine-workers {}",
                       without, is_model ? "do" : "compute it");
  if (is_model && config.rollout_num_gpus_per_engine > 1)
    return fmt::format("with --rollout-num-gpus-per-engine {} engines {}",
                       config.rollout_num_gpus_per_engine, without);
  if (config.takes_requests)
    return fmt::format("trainers by requests have engines without draft {}",
                       is_model ? "models" : "layers");
  return "";
}

/// Leaves the draft layer or model out with a note, and keeps other sources.
void apply_layer(ParsedFlags& flags) {
  RunConfig& config = flags.config;
  if (!config.names_draft_layer() && !config.names_draft_model()) return;
  const std::string why = why_nothing_foretells(config);
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
  const DraftWord word = word_of(config, config.sglang_speculative_algorithm.get());
  const bool has_tree = topk != 1 && (word == DraftWord::kLayer || word == DraftWord::kModel);
  const Flag<std::optional<int64_t>>& tokens = config.sglang_speculative_num_draft_tokens;
  // SGLang counts the last known token, which is computed with the drafts.
  if (!has_tree) take(kNumTokens, tokens, 1);
  take(kNumSteps, config.sglang_speculative_num_steps, 0);
  if (has_tree) {
    const std::string of_tree =
        tokens.get() ? fmt::format("; {} {} is of a tree", kNumTokens, *tokens.get()) : "";
    flags.warnings.push_back(
        fmt::format("{} {}: guesses are one chain, of {} at most ({}{}); use 1, or leave it out",
                    kTopk, topk, config.rollout_draft_tokens.peek().value_or(kUsualDrafts),
                    said.empty() ? "the default" : said, of_tree));
  }
  problems.require(
      has_tree || topk == 1,
      fmt::format("{} {}: guesses are one chain; use 1, or leave it out", kTopk, topk));
  bound("--rollout-draft-text-mb", config.rollout_draft_text_mb, 1, kMostTextMib);
  config.rollout_draft_tokens.stems_from(config.sglang_speculative_num_draft_tokens);
  config.rollout_draft_tokens.stems_from(config.sglang_speculative_num_steps);
  config.rollout_drafts.stems_from(config.sglang_speculative_eagle_topk);
}

/// A draft model that nobody named.
void check_draft_model_given(const ParsedFlags& flags, Problems& problems) {
  const RunConfig& config = flags.config;
  if (!config.names_draft_model() || has_draft_model(config)) return;
  const std::string& path = config.rollout_draft_model.peek();
  problems.require(
      false, path.empty()
                 ? fmt::format("{}: needs {} DIR, the directory of an EAGLE-3 draft model",
                               drafts_said(flags), kDraftModelFlag)
                 : fmt::format("{}: is the model itself; {} needs an EAGLE-3 draft model for it, "
                               "and --rollout-drafts mtp takes its own layer",
                               flags.how_said(kDraftModelFlag, path), drafts_said(flags)));
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
  check_draft_model_given(flags, problems);
  // Functions of the user's that count drafts ask `args` for this name.
  config.given_aliases["sglang_speculative_algorithm"] = config.names_draft_model()   ? "EAGLE3"
                                                         : config.names_draft_layer() ? "EAGLE"
                                                                                      : "NGRAM";
}

}  // namespace slime::config
