#include "engine/token_list_constraint.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/sampling_bounds.h"
#include "engine/sampler.h"
#include "text/tokenizer/tokenizer.h"

namespace slime::engine {
namespace {

void clear_bit(std::span<uint32_t> words, TokenId id) {
  words[static_cast<std::size_t>(id / 32)] &= ~(1U << (id % 32));
}

/// As at a text's beginning, and as behind a blank.
std::vector<std::vector<TokenId>> runs_of(const std::string& word,
                                          const text::Tokenizer& tokenizer) {
  const std::size_t begin = std::min(word.find_first_not_of(' '), word.size());
  std::vector<std::vector<TokenId>> runs{tokenizer.encode(word)};
  std::vector<TokenId> behind_blank = tokenizer.encode(" " + word.substr(begin));
  if (behind_blank != runs.front()) runs.push_back(std::move(behind_blank));
  std::erase_if(runs, [](const auto& run) { return run.empty(); });
  return runs;
}

}  // namespace

TokenLists token_lists_of(const GenerateRequest& request, std::span<const TokenId> eos_ids,
                          const text::Tokenizer* tokenizer) {
  const SamplingParams& sampling = request.sampling;
  TokenLists lists{.allowed_ids = sampling.allowed_token_ids};
  if (!sampling.bad_words.empty() && tokenizer == nullptr)
    throw ConfigError("bad_words needs a tokenizer, and this engine has none");
  for (const std::string& word : sampling.bad_words) {
    auto runs = runs_of(word, *tokenizer);
    if (runs.empty())
      throw ConfigError(fmt::format("bad_words: the tokenizer has no tokens for \"{}\"", word));
    std::ranges::move(runs, std::back_inserter(lists.banned_runs));
  }
  if (!sampling.has_grammar() && sampling.min_new_tokens > 0) {
    lists.end_ids = forbidden_ids(sampling, {eos_ids.begin(), eos_ids.end()}, kMostTokens);
    // Tokens of earlier calls are told to the constraint, too.
    lists.min_tokens = request.num_sampled + sampling.min_new_tokens;
  }
  return lists;
}

TokenListConstraint::TokenListConstraint(TokenLists lists, int64_t vocab_size,
                                         std::unique_ptr<TokenConstraint> grammar)
    : lists_(std::move(lists)), vocab_size_(vocab_size), grammar_(std::move(grammar)) {
  if (!lists_.allowed_ids.empty()) {
    allowed_W_.assign(static_cast<std::size_t>(mask_words(vocab_size)), 0);
    for (const TokenId id : lists_.allowed_ids)
      allowed_W_[static_cast<std::size_t>(id / 32)] |= 1U << (id % 32);
  }
  for (const auto& run : lists_.banned_runs) longest_run_ = std::max(longest_run_, run.size());
}

void TokenListConstraint::accept(TokenId token) {
  ++num_tokens_;
  if (longest_run_ > 1) {
    last_.push_back(token);
    if (last_.size() >= longest_run_) last_.pop_front();
  }
  if (grammar_ != nullptr) grammar_->accept(token);
}

TokenConstraint::Allowed TokenListConstraint::allow(std::span<uint32_t> words) {
  Allowed by_grammar = Allowed::kAny;
  if (grammar_ != nullptr) by_grammar = grammar_->allow(words);
  if (by_grammar == Allowed::kNone) {
    problem_ = grammar_->problem();
    return Allowed::kNone;
  }
  if (by_grammar == Allowed::kAny) {
    std::ranges::fill(words, ~uint32_t{0});
    if (vocab_size_ % 32 != 0) words.back() = (1U << (vocab_size_ % 32)) - 1;
  }
  for (std::size_t i = 0; i < allowed_W_.size(); ++i) words[i] &= allowed_W_[i];
  ban_ends_of_runs(words);
  if (num_tokens_ < lists_.min_tokens) {
    for (const TokenId id : lists_.end_ids)
      if (id < vocab_size_) clear_bit(words, id);
  }
  if (std::ranges::any_of(words, [](uint32_t word) { return word != 0; })) return Allowed::kSome;
  problem_ = fmt::format("allowed_token_ids and bad_words leave no token{} after {} tokens",
                         grammar_ != nullptr               ? " that the grammar allows"
                         : num_tokens_ < lists_.min_tokens ? " that does not end the response"
                                                           : "",
                         num_tokens_);
  return Allowed::kNone;
}

void TokenListConstraint::ban_ends_of_runs(std::span<uint32_t> words) const {
  for (const auto& run : lists_.banned_runs) {
    const auto before = static_cast<std::ptrdiff_t>(run.size()) - 1;
    if (before > std::ssize(last_) || run.back() >= vocab_size_) continue;
    if (std::equal(run.begin(), run.end() - 1, last_.end() - before)) clear_bit(words, run.back());
  }
}

}  // namespace slime::engine
