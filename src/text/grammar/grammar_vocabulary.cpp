#include "text/grammar/grammar_vocabulary.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "text/grammar/engine_parts.h"
#include "text/tokenizer/tokenizer.h"
#include "text/unicode/unicode.h"

namespace slime::text {
namespace {

/// Tokenizers that write a blank in front of every text (Metaspace) leave it out of what they decode.
bool drops_first_blank(const Tokenizer& tokenizer, TokenId id, std::string_view bytes) {
  return tokenizer.decode(std::vector{id}, /*skip_special_tokens=*/false) == bytes.substr(1);
}

/// Empty where the first of them shows that nothing is left out.
std::vector<TokenId> blank_ids_of(const Tokenizer& tokenizer, TokenId known) {
  std::vector<TokenId> ids;
  for (TokenId id = 0; id < known; ++id) {
    const std::string_view bytes = tokenizer.token_bytes(id);
    if (!bytes.starts_with(' ') || tokenizer.is_special(id)) continue;
    if (is_valid_utf8(bytes) && !drops_first_blank(tokenizer, id, bytes)) return {};
    ids.push_back(id);
  }
  return ids;
}

std::shared_ptr<const GrammarVocabulary::Parts> make_parts(std::vector<std::string> bytes,
                                                           std::span<const TokenId> end_ids,
                                                           std::vector<TokenId> special_ids,
                                                           std::vector<TokenId> blank_ids) {
  const auto width = static_cast<int64_t>(bytes.size());
  check(width > 0 && width <= INT32_MAX, "a vocabulary has tokens");
  for (const TokenId id : end_ids) {
    if (id < 0 || id >= width)
      throw ConfigError("end token " + std::to_string(id) + " is not in the vocabulary");
  }
  std::erase_if(special_ids, [&](TokenId id) {
    const bool ends = std::find(end_ids.begin(), end_ids.end(), id) != end_ids.end();
    return ends || id < 0 || id >= width || bytes[static_cast<std::size_t>(id)].empty();
  });
  std::sort(special_ids.begin(), special_ids.end());
  xgrammar::TokenizerInfo info(bytes, xgrammar::VocabType::RAW, static_cast<int>(width),
                               std::vector<int32_t>(end_ids.begin(), end_ids.end()));
  return std::make_shared<const GrammarVocabulary::Parts>(
      GrammarVocabulary::Parts{std::move(info),
                               std::move(special_ids),
                               {end_ids.begin(), end_ids.end()},
                               std::move(blank_ids),
                               width});
}

}  // namespace

GrammarVocabulary::GrammarVocabulary(const Tokenizer& tokenizer, int64_t width,
                                     std::span<const TokenId> end_ids) {
  std::vector<std::string> bytes(static_cast<std::size_t>(width));
  std::vector<TokenId> special_ids;
  const auto known = static_cast<TokenId>(std::min(width, tokenizer.vocab_size()));
  for (TokenId id = 0; id < known; ++id) {
    bytes[static_cast<std::size_t>(id)] = tokenizer.token_bytes(id);
    if (tokenizer.is_special(id)) special_ids.push_back(id);
  }
  parts_ =
      make_parts(std::move(bytes), end_ids, std::move(special_ids), blank_ids_of(tokenizer, known));
}

GrammarVocabulary::GrammarVocabulary(std::vector<std::string> token_bytes,
                                     std::span<const TokenId> end_ids,
                                     std::vector<TokenId> special_ids)
    : parts_(make_parts(std::move(token_bytes), end_ids, std::move(special_ids), {})) {}

GrammarVocabulary GrammarVocabulary::of_bytes() {
  constexpr TokenId kEnd = 256;
  std::vector<std::string> bytes;
  for (int byte = 0; byte < kEnd; ++byte) bytes.emplace_back(1, static_cast<char>(byte));
  bytes.emplace_back();
  return GrammarVocabulary(std::move(bytes), std::vector<TokenId>{kEnd});
}

GrammarVocabulary::~GrammarVocabulary() = default;
GrammarVocabulary::GrammarVocabulary(GrammarVocabulary&&) noexcept = default;
GrammarVocabulary& GrammarVocabulary::operator=(GrammarVocabulary&&) noexcept = default;

int64_t GrammarVocabulary::width() const { return parts_->width; }

}  // namespace slime::text
