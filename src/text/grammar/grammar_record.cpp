#include "text/grammar/grammar_record.h"

#include <fmt/format.h>

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/field_reader.h"
#include "text/grammar/compiled_grammar.h"
#include "text/grammar/grammar_matcher.h"
#include "text/tokenizer/tokenizer.h"

namespace slime::text {
namespace {

GrammarSpec spec_of(const json::object& line, const FieldReader& fields, const std::string& where) {
  GrammarSpec spec;
  const std::string name = *fields.required().text("kind");
  const auto kind = find_grammar_kind(name);
  if (!kind) {
    throw ConfigError(fmt::format(
        "{}: kind must be json_schema, json_object, regex, ebnf or structural_tag, not \"{}\"",
        where, name));
  }
  spec.kind = *kind;
  if (const auto* source = line.if_contains("src"))
    spec.source = source->is_string() ? std::string(source->get_string()) : json_text(*source);
  else if (*kind != GrammarKind::kJsonObject)
    throw ConfigError(where + ": src is missing");
  spec.max_whitespace =
      static_cast<int>(fields.integer("max_whitespace", 0, 10000).value_or(spec.max_whitespace));
  return spec;
}

bool has_bit(std::span<const uint32_t> words, TokenId id) {
  return (words[static_cast<std::size_t>(id) / 32] >> (id % 32) & 1U) != 0;
}

/// How far a text comes: where its token that is not allowed begins, or nothing where it is accepted.
/// The masks must allow what the matcher accepts.
class GrammarTrial final {
 public:
  explicit GrammarTrial(std::shared_ptr<const CompiledGrammar> grammar)
      : matcher_(std::move(grammar)) {}

  bool next(TokenId id, int64_t width) {
    std::vector<uint32_t> words(static_cast<std::size_t>((width + 31) / 32), 0);
    const auto allowed = matcher_.allow(words);
    const bool is_allowed = allowed == GrammarMatcher::Allowed::kAny ||
                            (allowed == GrammarMatcher::Allowed::kSome && has_bit(words, id));
    const bool is_accepted = matcher_.accept(id);
    check(is_allowed == is_accepted, "a grammar's mask allows what its matcher accepts");
    return is_accepted;
  }
  bool may_end() const { return matcher_.may_end(); }

 private:
  GrammarMatcher matcher_;
};

std::optional<std::size_t> refused_byte(const std::shared_ptr<const CompiledGrammar>& grammar,
                                        std::string_view text) {
  GrammarTrial trial(grammar);
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (!trial.next(static_cast<uint8_t>(text[at]), grammar->width())) return at;
  }
  if (!trial.may_end()) return text.size();
  return std::nullopt;
}

bool accepts_tokens(const std::shared_ptr<const CompiledGrammar>& grammar,
                    const Tokenizer& tokenizer, std::string_view text) {
  GrammarTrial trial(grammar);
  for (const TokenId id : tokenizer.encode(text)) {
    if (!trial.next(id, grammar->width())) return false;
  }
  return trial.may_end();
}

}  // namespace

GrammarRecords::GrammarRecords(const Tokenizer* tokenizer, const GrammarLimits& limits)
    : tokenizer_(tokenizer), limits_(limits), bytes_(GrammarVocabulary::of_bytes()) {
  if (tokenizer == nullptr) return;
  const TokenId end = static_cast<TokenId>(tokenizer->vocab_size());  // one of its own
  tokens_ = std::make_unique<GrammarVocabulary>(*tokenizer, tokenizer->vocab_size() + 1,
                                                std::vector<TokenId>{end});
}

json::object GrammarRecords::record(const json::object& line, const std::string& where) const {
  const FieldReader fields(line, where + ": ");
  const GrammarSpec spec = spec_of(line, fields, where);
  const std::vector<std::string> texts = [&] {
    std::vector<std::string> all;
    if (const auto* list = fields.array("texts")) {
      for (const json::value& text : *list) {
        if (!text.is_string()) throw ConfigError(where + ": texts must be a list of texts");
        all.emplace_back(text.get_string());
      }
    }
    return all;
  }();
  json::object answer;
  if (const auto* id = line.if_contains("id")) answer["id"] = *id;
  answer["compiled"] = true;
  answer["error"] = nullptr;
  std::shared_ptr<const CompiledGrammar> by_bytes, by_tokens;
  try {
    by_bytes = compile_grammar(spec, bytes_, limits_);
    if (tokens_ != nullptr) by_tokens = compile_grammar(spec, *tokens_, limits_);
  } catch (const ConfigError& error) {
    answer["compiled"] = false;
    answer["error"] = error.what();
    return answer;
  }
  json::array results;
  bool differs = false;
  for (const std::string& text : texts) {
    const auto refused = refused_byte(by_bytes, text);
    json::object result{{"accepted", !refused}, {"refused_at", nullptr}};
    if (refused) result["refused_at"] = *refused;
    if (tokens_ != nullptr) {
      const bool by = accepts_tokens(by_tokens, *tokenizer_, text);
      result["by_tokens"] = by;
      differs |= by == refused.has_value();
    }
    results.push_back(result);
  }
  answer["results"] = results;
  if (tokens_ != nullptr) answer["differs"] = differs;
  return answer;
}

}  // namespace slime::text
