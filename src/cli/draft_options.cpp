#include "cli/draft_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <string_view>

#include "core/error.h"

namespace slime::cli {
namespace {

constexpr int64_t kUsualDrafts = 7;
constexpr int64_t kMostDrafts = 15;

std::string without_capitals(std::string word) {
  std::ranges::transform(word, word.begin(), [](unsigned char c) { return std::tolower(c); });
  return word;
}

/// Why the engine drafts nothing; empty: it does.
std::string why_no_drafts(const std::string& algorithm, const std::string& device,
                          bool has_states) {
  if (algorithm != "ngram")
    return "no draft model is computed, and answers are the same without one; on CPUs NGRAM saves "
           "time without a model";
  if (device != "cpu") return "drafts are verified on CPUs so far; answers are the same";
  if (has_states) return "layers of gated delta nets cannot step back; answers are the same";
  return "";
}

int64_t most_drafts(const DraftOptions& options) {
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
  app.add_option("--speculative-algorithm", options.algorithm,
                 "NGRAM: guess next tokens from the prompt and from earlier answers to it, and "
                 "verify them in one step, where that is faster; answers stay the same");
  app.add_option(
         "--speculative-num-draft-tokens", options.num_draft_tokens,
         "with NGRAM: tokens of a request and step, the last known one among them; default: "
         "8")
      ->check(CLI::PositiveNumber);
  app.add_option("--speculative-num-steps", options.num_steps,
                 "with NGRAM: the same, without the last known token")
      ->check(CLI::PositiveNumber);
  app.add_option("--speculative-eagle-topk", options.topk, "with NGRAM: 1, guesses are one chain")
      ->check(CLI::PositiveNumber);
  app.add_flag("--speculative-always", options.always,
               "with NGRAM: verify all guesses, also where that is slower: for measurements");
}

engine::DraftSettings draft_settings_of(const DraftOptions& options, const std::string& device,
                                        bool has_states, const std::string& who) {
  const std::string algorithm = without_capitals(options.algorithm);
  const auto tell = [&who](const std::string& flag, std::string_view why) {
    fmt::print(stderr, "{}: {} has no effect: {}\n", who, flag, why);
  };
  if (algorithm == "none" || algorithm.empty()) {
    constexpr std::string_view kNoAlgorithm = "it counts with --speculative-algorithm NGRAM";
    if (options.num_draft_tokens) tell("--speculative-num-draft-tokens", kNoAlgorithm);
    if (options.num_steps) tell("--speculative-num-steps", kNoAlgorithm);
    if (options.topk != 1) tell("--speculative-eagle-topk", kNoAlgorithm);
    if (options.always) tell("--speculative-always", kNoAlgorithm);
    return {};
  }
  if (const std::string why = why_no_drafts(algorithm, device, has_states); !why.empty()) {
    tell("--speculative-algorithm " + options.algorithm, why);
    return {};
  }
  const int64_t most = most_drafts(options);
  if (most < 1 || most > kMostDrafts) {
    throw ConfigError(
        options.num_draft_tokens
            ? fmt::format("--speculative-num-draft-tokens {}: should be between 2 and {}", most + 1,
                          kMostDrafts + 1)
            : fmt::format("--speculative-num-steps {}: should be between 1 and {}", most,
                          kMostDrafts));
  }
  return {.most = most, .always = options.always};
}

}  // namespace slime::cli
