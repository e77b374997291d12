#include "text/grammar/grammar_matcher.h"

#include <algorithm>
#include <string>
#include <utility>

#include "core/error.h"
#include "text/grammar/engine_parts.h"

namespace slime::text {

struct GrammarMatcher::Parts {
  explicit Parts(std::shared_ptr<const CompiledGrammar> compiled)
      : grammar(std::move(compiled)), matcher(grammar->parts().grammar) {}

  std::shared_ptr<const CompiledGrammar> grammar;
  xgrammar::GrammarMatcher matcher;
  int64_t num_accepted = 0;
  int64_t num_empty = 0;  // of these, the first: a blank that begins the text
  bool is_behind_text = false;
  bool has_ended = false;  // with a terminator: an end token was accepted, the last of num_accepted
  std::chrono::nanoseconds mask_time{0};
  std::string failure;  // of the engine

  /// The next token begins the text, and of this vocabulary its blank is left out.
  bool drops_blank() const {
    return num_accepted == 0 && !is_behind_text && !grammar->parts().blanks.empty();
  }
};

GrammarMatcher::GrammarMatcher(std::shared_ptr<const CompiledGrammar> grammar)
    : parts_(std::make_unique<Parts>(std::move(grammar))) {}
GrammarMatcher::~GrammarMatcher() = default;
GrammarMatcher::GrammarMatcher(GrammarMatcher&&) noexcept = default;
GrammarMatcher& GrammarMatcher::operator=(GrammarMatcher&&) noexcept = default;

GrammarMatcher::Allowed GrammarMatcher::allow(std::span<uint32_t> words) {
  const CompiledGrammar::Parts& grammar = parts_->grammar->parts();
  const auto width = static_cast<std::size_t>(grammar.width);
  check(words.size() == (width + 31) / 32, "a mask has a bit for each token");
  if (is_finished() || !parts_->failure.empty()) return Allowed::kNone;
  const auto begin = std::chrono::steady_clock::now();
  int64_t shape = static_cast<int64_t>(words.size());
  DLTensor tensor{};
  tensor.data = words.data();
  tensor.device = {kDLCPU, 0};
  tensor.ndim = 1;
  tensor.dtype = xgrammar::GetBitmaskDLType();
  tensor.shape = &shape;
  bool is_some = true;
  try {
    is_some = parts_->matcher.FillNextTokenBitmask(&tensor);
  } catch (const std::exception& error) {  // a grammar must not end the engine's thread
    parts_->failure = error.what();
    std::fill(words.begin(), words.end(), 0);
  }
  parts_->mask_time += std::chrono::steady_clock::now() - begin;
  const bool drops_blank = parts_->drops_blank();
  if (!is_some && grammar.banned.empty() && !drops_blank) {
    std::fill(words.begin(), words.end(), 0);
    return Allowed::kAny;
  }
  if (!is_some) std::fill(words.begin(), words.end(), ~uint32_t{0});
  if (grammar.terminator && may_end()) {
    for (const TokenId id : grammar.end_ids)
      words[static_cast<std::size_t>(id) / 32] |= uint32_t{1} << (id % 32);
  }
  if (width % 32 != 0) words.back() &= (uint32_t{1} << (width % 32)) - 1;
  for (const auto& [word, bits] : grammar.banned) words[word] &= ~bits;
  for (std::size_t i = 0; drops_blank && i < words.size(); ++i)
    words[i] = (words[i] & ~grammar.blanks[i]) | grammar.first_blanks[i];
  const bool is_none =
      std::all_of(words.begin(), words.end(), [](uint32_t word) { return word == 0; });
  return is_none ? Allowed::kNone : Allowed::kSome;
}

template <typename Accept>
bool GrammarMatcher::accepts(const Accept& accept) const {
  if (!parts_->failure.empty()) return false;
  try {
    return accept();
  } catch (const std::exception& error) {
    parts_->failure = error.what();
    return false;
  }
}

std::string GrammarMatcher::problem() const {
  if (!parts_->failure.empty()) return "the grammar cannot be followed further: " + parts_->failure;
  if (is_finished()) return "the text has ended";
  return "no token of the vocabulary continues the text as the grammar wants it";
}

bool GrammarMatcher::accept(TokenId token) {
  const CompiledGrammar::Parts& grammar = parts_->grammar->parts();
  if (token < 0 || token >= grammar.width || is_finished() || grammar.is_banned(token))
    return false;
  if (grammar.terminator && grammar.is_end(token)) return accept_end();
  if (parts_->drops_blank() && grammar.is_blank(token)) return accept_without_blank(token);
  if (!accepts([&] { return parts_->matcher.AcceptToken(token); })) return false;
  ++parts_->num_accepted;
  return true;
}

bool GrammarMatcher::accept_end() {
  const std::string end(1, *parts_->grammar->parts().terminator);
  if (!accepts([&] { return parts_->matcher.AcceptString(end); })) return false;
  ++parts_->num_accepted;
  parts_->has_ended = true;
  return true;
}

void GrammarMatcher::begin_behind_text() { parts_->is_behind_text = true; }

bool GrammarMatcher::accept_without_blank(TokenId token) {
  const auto& texts = parts_->grammar->parts().grammar.GetTokenizerInfo().GetDecodedVocab();
  const std::string_view rest = std::string_view(texts[static_cast<std::size_t>(token)]).substr(1);
  if (!rest.empty()) return accept_text(rest);
  ++parts_->num_empty;
  ++parts_->num_accepted;
  return true;
}

bool GrammarMatcher::accept_text(std::string_view bytes) {
  if (is_finished()) return false;
  const auto terminator = parts_->grammar->parts().terminator;
  if (terminator && bytes.find(*terminator) != std::string_view::npos) return false;
  if (!accepts([&] { return parts_->matcher.AcceptString(std::string(bytes)); })) return false;
  ++parts_->num_accepted;
  return true;
}

void GrammarMatcher::rollback(int64_t count) {
  check(count >= 0 && count <= parts_->num_accepted, "no more is taken back than was accepted");
  parts_->num_accepted -= count;
  if (count > 0) parts_->has_ended = false;
  const int64_t num_empty = parts_->num_accepted == 0 ? std::exchange(parts_->num_empty, 0) : 0;
  parts_->matcher.Rollback(static_cast<int>(count - num_empty));
}

bool GrammarMatcher::may_end() const {
  if (is_finished() || !parts_->failure.empty()) return false;
  const auto terminator = parts_->grammar->parts().terminator;
  if (!terminator) return parts_->matcher.IsCompleted();
  const bool may =
      accepts([&] { return parts_->matcher.AcceptString(std::string(1, *terminator)); });
  if (may) parts_->matcher.Rollback(1);
  return may;
}
bool GrammarMatcher::is_finished() const {
  return parts_->has_ended || parts_->matcher.IsTerminated();
}
int64_t GrammarMatcher::num_accepted() const { return parts_->num_accepted; }
std::chrono::nanoseconds GrammarMatcher::mask_time() const { return parts_->mask_time; }

}  // namespace slime::text
