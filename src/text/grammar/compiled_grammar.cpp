#include "text/grammar/compiled_grammar.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "core/error.h"
#include "core/json.h"
#include "text/grammar/ebnf_reader.h"
#include "text/grammar/engine_log.h"
#include "text/grammar/engine_parts.h"
#include "text/grammar/grammar_matcher.h"
#include "text/grammar/regex_reader.h"
#include "text/grammar/schema_reader.h"
#include "text/grammar/structural_tag_reader.h"

namespace slime::text {
namespace {

constexpr int kMostWhitespace = 10000;

/// All texts of a JSON value, and the ids of tokens that it names.
void collect_texts(const json::value& value, std::string& texts, std::vector<TokenId>& ids) {
  if (const auto* text = value.if_string()) {
    texts += '\n';
    texts += std::string_view(*text);
  } else if (const auto* array = value.if_array()) {
    for (const json::value& element : *array) collect_texts(element, texts, ids);
  } else if (const auto* object = value.if_object()) {
    for (const auto& member : *object) {
      texts += '\n';
      texts += std::string_view(member.key());
      collect_texts(member.value(), texts, ids);
    }
  } else if (const auto* id = value.if_int64()) {
    if (*id >= 0 && *id <= INT32_MAX) ids.push_back(static_cast<TokenId>(*id));
  }
}

/// What a source says about special tokens: those that it does not spell are not for it.
struct SpelledTokens {
  std::string texts;
  std::vector<TokenId> ids;

  bool contains(TokenId id, const std::string& text) const {
    return texts.find(text) != std::string::npos ||
           std::find(ids.begin(), ids.end(), id) != ids.end();
  }
};

SpelledTokens spelled_by(const std::string& source) {
  SpelledTokens spelled{.texts = source};
  spelled.texts += '\n';
  for (std::size_t at = 0; at < source.size(); ++at) {
    if (source[at] == '\\' && at + 1 < source.size()) ++at;
    spelled.texts += source[at];
  }
  return spelled;
}

/// Special tokens that the source does not spell, and tokens that hold what stands for the end of a text.
std::vector<std::pair<std::size_t, uint32_t>> banned_words(const GrammarVocabulary::Parts& parts,
                                                           const SpelledTokens& spelled,
                                                           std::optional<char> terminator) {
  std::vector<std::pair<std::size_t, uint32_t>> words;
  const auto& texts = parts.info.GetDecodedVocab();
  std::vector<TokenId> ids;
  for (const TokenId id : parts.special_ids)
    if (!spelled.contains(id, texts[static_cast<std::size_t>(id)])) ids.push_back(id);
  if (terminator) {
    for (std::size_t at = 0; at < texts.size(); ++at)
      if (texts[at].find(*terminator) != std::string::npos) ids.push_back(static_cast<TokenId>(at));
    std::ranges::sort(ids);
    ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  }
  for (const TokenId id : ids) {
    if (std::ranges::find(parts.end_ids, id) != parts.end_ids.end()) continue;
    const auto at = static_cast<std::size_t>(id);
    if (words.empty() || words.back().first != at / 32) words.emplace_back(at / 32, 0);
    words.back().second |= uint32_t{1} << (at % 32);
  }
  return words;
}

json::value parsed_source(const GrammarSpec& spec, const std::string& where) {
  if (const auto key = find_duplicate_key(spec.source))
    throw ConfigError(fmt::format("{}: an object has the key \"{}\" twice", where, *key));
  return parse_json(spec.source, where);
}

class GrammarCompilation final {
 public:
  GrammarCompilation(const GrammarSpec& spec, const GrammarVocabulary& vocabulary,
                     const GrammarLimits& limits)
      : spec_(spec),
        where_(grammar_kind_name(spec.kind)),
        limits_(limits),
        vocabulary_(vocabulary.parts()),
        compiler_(vocabulary_.info, /*max_threads=*/1, /*cache_enabled=*/false,
                  /*max_memory_bytes=*/-1, /*enable_dynamic_compilation=*/true) {}

  std::unique_ptr<CompiledGrammar::Parts> run() {
    const EngineWarnings warnings;
    auto grammar = compile();
    if (!warnings.all().empty())
      throw ConfigError(fmt::format("{}: {}", where_, warnings.all().front()));
    return std::make_unique<CompiledGrammar::Parts>(
        CompiledGrammar::Parts{.grammar = std::move(grammar),
                               .banned = banned_words(vocabulary_, spelled_, terminator_),
                               .terminator = terminator_,
                               .end_ids = vocabulary_.end_ids,
                               .blanks = blanks(),
                               .first_blanks = {},
                               .width = vocabulary_.width});
  }

 private:
  xgrammar::CompiledGrammar compile() {
    try {
      switch (spec_.kind) {
        case GrammarKind::kJsonSchema:
          return schema(parsed_source(spec_, where_));
        case GrammarKind::kJsonObject:
          return schema(json::object{{"type", "object"}});
        case GrammarKind::kRegex:
          spelled_ = spelled_by(spec_.source);
          return regex(read_whole_regex(spec_.source, where_, limits_));
        case GrammarKind::kEbnf:
          spelled_ = spelled_by(spec_.source);
          check_ebnf(spec_.source, where_, limits_);
          return engine([&] {
            return compiler_.CompileGrammar(spec_.source + std::string(kEbnfWhole),
                                            std::string(kEbnfWholeName));
          });
        case GrammarKind::kStructuralTag:
          return tag(parsed_source(spec_, where_));
      }
    } catch (const ConfigError&) {
      throw;
    } catch (const std::exception& error) {
      throw ConfigError(fmt::format("{}: {}", where_, error.what()));
    }
    throw BugError("a grammar of no kind");
  }

  std::vector<uint32_t> blanks() const {
    if (vocabulary_.blank_ids.empty()) return {};
    std::vector<uint32_t> words(static_cast<std::size_t>((vocabulary_.width + 31) / 32), 0);
    for (const TokenId id : vocabulary_.blank_ids)
      words[static_cast<std::size_t>(id) / 32] |= uint32_t{1} << (id % 32);
    return words;
  }

  /// The engine's own errors do not say what they are of.
  template <typename Compile>
  xgrammar::CompiledGrammar engine(const Compile& compile) {
    try {
      return compile();
    } catch (const ConfigError& error) {
      const std::string text = error.what();
      if (text.starts_with(where_)) throw;
      throw ConfigError(fmt::format("{}: {}", where_, text));
    }
  }

  /// The engine counts characters quickly in front of one that ends them: where the text ends with a count,
  /// a character that it cannot hold stands there, and the end tokens for it (GrammarMatcher).
  xgrammar::CompiledGrammar regex(const TextPattern& pattern) {
    if (ends_in_count(pattern)) terminator_ = character_outside(pattern);
    std::string rule = "root ::= ";
    if (terminator_) {
      rule += fmt::format("({}) {}", ebnf_text(pattern, static_cast<uint8_t>(*terminator_)),
                          ebnf_text(set_pattern({{static_cast<uint8_t>(*terminator_),
                                                  static_cast<uint8_t>(*terminator_)}})));
    } else {
      rule += ebnf_text(pattern);
    }
    return engine([&] { return compiler_.CompileGrammar(rule + "\n"); });
  }

  xgrammar::CompiledGrammar schema(const json::value& schema) {
    collect_texts(schema, spelled_.texts, spelled_.ids);
    spelled_.ids.clear();  // numbers of a schema are no tokens
    SchemaUse use{.text_mark = text_mark_for(spec_.source)};
    const std::string text =
        json_text(read_schema(schema, SchemaForm::kJson, where_, limits_, use));
    const bool any_whitespace = spec_.max_whitespace > 0;
    const std::optional<int> most =
        any_whitespace ? std::optional<int>(spec_.max_whitespace) : std::nullopt;
    return engine([&] {
      if (use.texts.empty()) {
        return compiler_.CompileJSONSchema(text, any_whitespace, std::nullopt, std::nullopt,
                                           /*strict_mode=*/true, most);
      }
      const auto grammar =
          xgrammar::Grammar::FromJSONSchema(text, any_whitespace, std::nullopt, std::nullopt,
                                            /*strict_mode=*/true, most);
      return compiler_.CompileGrammar(with_texts(grammar.ToString(), use));
    });
  }

  xgrammar::CompiledGrammar tag(const json::value& source) {
    collect_texts(source, spelled_.texts, spelled_.ids);
    SchemaUse use{.text_mark = text_mark_for(spec_.source)};
    const std::string text =
        json_text(read_structural_tag(source, spec_.max_whitespace, where_, limits_, use));
    return engine([&] {
      if (use.texts.empty()) return compiler_.CompileStructuralTag(text);
      auto made = xgrammar::Grammar::FromStructuralTag(text, vocabulary_.info);
      const auto* grammar = std::get_if<xgrammar::Grammar>(&made);
      // What it says about the mistake, the compiler says too.
      if (grammar == nullptr) return compiler_.CompileStructuralTag(text);
      return compiler_.CompileGrammar(with_texts(grammar->ToString(), use));
    });
  }

  const GrammarSpec& spec_;
  const std::string where_;
  const GrammarLimits& limits_;
  const GrammarVocabulary::Parts& vocabulary_;
  xgrammar::GrammarCompiler compiler_;
  SpelledTokens spelled_;
  std::optional<char> terminator_;
};

}  // namespace

namespace {

/// Which tokens may begin a text without the blank that they begin with.
std::vector<uint32_t> first_blanks(const std::shared_ptr<const CompiledGrammar>& grammar,
                                   const GrammarVocabulary::Parts& vocabulary) {
  std::vector<uint32_t> words(grammar->parts().blanks.size(), 0);
  GrammarMatcher matcher(grammar);
  for (const TokenId id : vocabulary.blank_ids) {
    const std::string& bytes = vocabulary.info.GetDecodedVocab()[static_cast<std::size_t>(id)];
    const std::string_view rest = std::string_view(bytes).substr(1);
    if (!rest.empty()) {
      if (!matcher.accept_text(rest)) continue;
      matcher.rollback(1);
    }
    words[static_cast<std::size_t>(id) / 32] |= uint32_t{1} << (id % 32);
  }
  return words;
}

}  // namespace

CompiledGrammar::CompiledGrammar(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
CompiledGrammar::~CompiledGrammar() = default;

std::size_t CompiledGrammar::size_bytes() const { return parts_->grammar.MemorySizeBytes(); }
int64_t CompiledGrammar::width() const { return parts_->width; }

bool CompiledGrammar::Parts::is_banned(TokenId id) const {
  const auto at = static_cast<std::size_t>(id);
  const auto word =
      std::lower_bound(banned.begin(), banned.end(), at / 32,
                       [](const auto& one, std::size_t index) { return one.first < index; });
  return word != banned.end() && word->first == at / 32 && (word->second >> (at % 32) & 1U) != 0;
}

std::shared_ptr<const CompiledGrammar> compile_grammar(const GrammarSpec& spec,
                                                       const GrammarVocabulary& vocabulary,
                                                       const GrammarLimits& limits) {
  const std::string_view kind = grammar_kind_name(spec.kind);
  if (spec.source.size() > limits.source_bytes) {
    throw ConfigError(fmt::format("{} has {} bytes, at most {} are allowed", kind,
                                  spec.source.size(), limits.source_bytes));
  }
  if (spec.max_whitespace < 0 || spec.max_whitespace > kMostWhitespace)
    throw ConfigError(fmt::format("max_whitespace must be from 0 to {}", kMostWhitespace));
  auto parts = GrammarCompilation(spec, vocabulary, limits).run();
  CompiledGrammar::Parts& own = *parts;
  auto grammar = std::make_shared<const CompiledGrammar>(std::move(parts));
  own.first_blanks = first_blanks(grammar, vocabulary.parts());  // nobody else has it yet
  // The mask of the first token is needed in any case; it shows that there is one.
  std::vector<uint32_t> words(static_cast<std::size_t>((grammar->width() + 31) / 32), 0);
  if (GrammarMatcher(grammar).allow(words) == GrammarMatcher::Allowed::kNone)
    throw ConfigError(fmt::format("{} matches nothing that the vocabulary can write", kind));
  return grammar;
}

}  // namespace slime::text
