#include "cli/draft_options.h"

#include <fmt/format.h>

#include <cstdio>
#include <string_view>

#include "core/draft_words.h"
#include "core/error.h"
#include "model/network.h"

namespace slime::cli {
namespace {

/// Why the engine drafts nothing; empty: it does.
std::string why_no_drafts(DraftWord word, const DraftOptions& options, const std::string& device,
                          const model::ModelConfig& model) {
  if (word == DraftWord::kOther)
    return "draft models of this kind are not computed, and answers are the same without one; "
           "NGRAM saves time without a model";
  if (!model.delta.in_layer.empty())
    return "layers of gated delta nets cannot step back; answers are the same";
  if (word == DraftWord::kTexts) return "";
  if (device != "cpu") {
    return fmt::format("no draft {} on GPUs yet; answers are the same, and NGRAM saves time there",
                       word == DraftWord::kLayer ? "layer" : "model");
  }
  if (word == DraftWord::kModel && options.num_ranks > 1)
    return fmt::format("with --tp-size {} no draft model is computed; answers are the same",
                       options.num_ranks);
  const std::string why = word == DraftWord::kLayer ? model::why_no_draft_layers(model) : "";
  return why.empty() ? ""
                     : why + "; answers are the same, and NGRAM saves time without such a layer";
}

int64_t most_drafts(const DraftOptions& options, DraftWord word, const std::string& who) {
  if (options.topk != 1 && word != DraftWord::kTexts) {
    // The size of a tree says nothing of a chain.
    const int64_t most = options.num_steps.value_or(kUsualDrafts);
    fmt::print(stderr,
               "{}: --speculative-eagle-topk {}: guesses are one chain, of {} at most{}; use 1, or "
               "leave it out\n",
               who, options.topk, most,
               options.num_draft_tokens
                   ? fmt::format(" (--speculative-num-draft-tokens {} is of a tree)",
                                 *options.num_draft_tokens)
                   : "");
    return most;
  }
  if (options.topk != 1) {
    throw ConfigError(
        fmt::format("--speculative-eagle-topk {}: guesses are one chain; use 1, or leave it out",
                    options.topk));
  }
  // SGLang counts the last known token, which is computed with the drafts.
  if (options.num_steps && options.num_draft_tokens &&
      *options.num_steps + 1 != *options.num_draft_tokens) {
    throw ConfigError(fmt::format(
        "--speculative-num-steps {} and --speculative-num-draft-tokens {}: {} guesses are {} "
        "tokens, the last known one among them; choose one",
        *options.num_steps, *options.num_draft_tokens, *options.num_steps, *options.num_steps + 1));
  }
  if (options.num_draft_tokens) return *options.num_draft_tokens - 1;
  return options.num_steps.value_or(kUsualDrafts);
}

}  // namespace

void add_draft_options(CLI::App& app, DraftOptions& options) {
  app.add_option(
      "--speculative-algorithm", options.algorithm,
      "guess next tokens and verify them in one step, where that is faster; answers "
      "stay the same. NGRAM: from the prompt and from earlier answers to it; NEXTN or "
      "EAGLE: by the model's own layer for multi-token prediction; EAGLE3, or EAGLE with "
      "a path: by --speculative-draft-model-path");
  app.add_option("--speculative-draft-model-path,--speculative-draft-model", options.model,
                 "with EAGLE3 or EAGLE: directory or name of an EAGLE-3 draft model");
  app.add_option(
         "--speculative-num-draft-tokens", options.num_draft_tokens,
         "with an algorithm: tokens of a request and step, the last known one among them; default: "
         "8")
      ->check(CLI::PositiveNumber);
  app.add_option("--speculative-num-steps", options.num_steps,
                 "with an algorithm: the same, without the last known token")
      ->check(CLI::PositiveNumber);
  app.add_option("--speculative-eagle-topk", options.topk,
                 "with an algorithm: 1, guesses are one chain")
      ->check(CLI::PositiveNumber);
  app.add_flag(
      "--speculative-always", options.always,
      "with an algorithm: verify all guesses, also where that is slower: for measurements");
}

engine::DraftSettings draft_settings_of(const DraftOptions& options, const std::string& device,
                                        const model::ModelConfig& model, const std::string& who) {
  const DraftWord word = draft_word_of(options.algorithm, !options.model.empty());
  constexpr std::string_view kNoModel = "it counts with --speculative-algorithm EAGLE3, or EAGLE";
  const auto tell = [&who](const std::string& flag, std::string_view why) {
    fmt::print(stderr, "{}: {} has no effect: {}\n", who, flag, why);
  };
  if (word == DraftWord::kNone) {
    constexpr std::string_view kNoAlgorithm =
        "it counts with --speculative-algorithm NGRAM, NEXTN or EAGLE3";
    if (options.num_draft_tokens) tell("--speculative-num-draft-tokens", kNoAlgorithm);
    if (options.num_steps) tell("--speculative-num-steps", kNoAlgorithm);
    if (options.topk != 1) tell("--speculative-eagle-topk", kNoAlgorithm);
    if (options.always) tell("--speculative-always", kNoAlgorithm);
    if (!options.model.empty()) tell("--speculative-draft-model-path", kNoModel);
    return {};
  }
  if (const std::string why = why_no_drafts(word, options, device, model); !why.empty()) {
    tell("--speculative-algorithm " + options.algorithm, why);
    return {};
  }
  if (word == DraftWord::kModel && options.model.empty()) {
    throw ConfigError(fmt::format(
        "--speculative-algorithm {}: needs --speculative-draft-model-path DIR, the directory of an "
        "EAGLE-3 draft model for this model",
        options.algorithm));
  }
  if (word != DraftWord::kModel && !options.model.empty())
    tell("--speculative-draft-model-path", kNoModel);
  const int64_t most = most_drafts(options, word, who);
  if (most < 1 || most > kMostDrafts) {
    throw ConfigError(
        options.num_draft_tokens && options.topk == 1
            ? fmt::format("--speculative-num-draft-tokens {}: should be between 2 and {}", most + 1,
                          kMostDrafts + 1)
            : fmt::format("--speculative-num-steps {}: should be between 1 and {}", most,
                          kMostDrafts));
  }
  return {.most = most,
          .always = options.always,
          .texts = word == DraftWord::kTexts,
          .layer = word == DraftWord::kLayer,
          .model = word == DraftWord::kModel};
}

}  // namespace slime::cli
