#pragma once

/// Place of one text in its grammar: which tokens may come next.
///
///   GrammarMatcher matcher(grammar);
///   std::vector<uint32_t> words(mask_words, 0);
///   matcher.allow(words);   // bit id % 32 of words[id / 32] for each token that may come
///   matcher.accept(id);     // one of them

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "core/sample.h"
#include "text/grammar/compiled_grammar.h"

namespace slime::text {

/// One text, one thread.
class GrammarMatcher final {
 public:
  explicit GrammarMatcher(std::shared_ptr<const CompiledGrammar> grammar);
  ~GrammarMatcher();
  GrammarMatcher(GrammarMatcher&&) noexcept;
  GrammarMatcher& operator=(GrammarMatcher&&) noexcept;

  enum class Allowed : uint8_t {
    kAny,   // every token, the words are untouched
    kSome,  // those of the words
    kNone,  // the text cannot go on with this vocabulary, or has ended: problem()
  };
  /// Sets bit id % 32 of words[id / 32] for each token that may come, of (width() + 31) / 32 words that
  /// are zeros.
  Allowed allow(std::span<uint32_t> words);

  /// Other text stands in front of the first token. Otherwise the token begins the text, and of tokenizers
  /// that write a blank in front of every text (Metaspace) its blank does not count. Before accept().
  void begin_behind_text();

  /// The text goes on with this token. False, and nothing has changed, where the grammar does not allow it.
  bool accept(TokenId token);
  /// The same with bytes, whatever tokens they are.
  bool accept_text(std::string_view bytes);

  /// Takes back so many calls of accept() and accept_text() that were true. `count` is at most their
  /// number.
  void rollback(int64_t count);

  /// The text is whole as it stands: an end token is allowed.
  bool may_end() const;
  /// Why nothing is allowed, for a person.
  std::string problem() const;

  /// An end token was accepted.
  bool is_finished() const;
  /// Calls to roll back.
  int64_t num_accepted() const;

  /// Spent in allow(): a state of the grammar that no text was in before costs milliseconds.
  std::chrono::nanoseconds mask_time() const;

 private:
  struct Parts;
  template <typename Accept>
  bool accepts(const Accept& accept) const;
  bool accept_end();
  bool accept_without_blank(TokenId token);

  std::unique_ptr<Parts> parts_;
};

}  // namespace slime::text
