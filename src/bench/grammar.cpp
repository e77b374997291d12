/// Grammars of constrained decoding: time to compile one, and of each token's mask.

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "bench/flags.h"
#include "core/clock.h"
#include "core/json_lines.h"
#include "core/random.h"
#include "text/grammar/grammar_matcher.h"
#include "text/tokenizer/tokenizer.h"

namespace slime::bench {
namespace {

struct GrammarOptions {
  std::string tokenizer;        // a model directory; empty: a made-up vocabulary
  int64_t vocab_size = 151936;  // of the made-up one
  int64_t tokens = 2000;        // of each grammar
  std::string only;
};

/// Bytes, then words of syllables, with and without a space and a capital, numbers and marks of JSON: as many
/// tokens of each length as published vocabularies have, about.
std::vector<std::string> made_up_vocabulary(int64_t size) {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  for (int number = 10; number < 1000; ++number) tokens.push_back(std::to_string(number));
  for (const char* mark :
       {"{\"", "\":", "\": ", "\",", "\", \"", "\"}",  "},",          "}}",          "[{",
        "}]",  "],",  "[\"",  "\"]", "  ",     "    ", "        ",    "\n\n",        ",\n",
        "{\n", "();", "->",   "==",  "\\\"",   "\\n",  "<tool_call>", "</tool_call>"})
    tokens.emplace_back(mark);
  constexpr const char* kSyllables[] = {
      "an",           "be",       "co",  "der", "e", "fi",   "gra", "ing", "ly", "mo",
      "nt",           "o",        "per", "re",  "s", "tion", "u",   "ver", "w",  "\xc3\xa9",
      "\xe4\xbd\xa0", "\xd0\xb4", "y",   "qu"};
  for (uint64_t i = 0; static_cast<int64_t>(tokens.size()) < size; ++i) {
    std::string word;
    const int count = 1 + static_cast<int>(uniform(1, i, 0) * 4);
    for (int at = 1; at <= count; ++at)
      word += kSyllables[static_cast<std::size_t>(uniform(1, i, static_cast<uint64_t>(at)) *
                                                  std::size(kSyllables))];
    const double form = uniform(2, i, 0);
    if (form < 0.2 && word[0] >= 'a' && word[0] <= 'z') word[0] = static_cast<char>(word[0] - 32);
    if (form > 0.5) word.insert(word.begin(), ' ');
    word += std::to_string(i % 97 == 0 ? i : 0).substr(i % 97 == 0 ? 0 : 1);
    tokens.push_back(word);
  }
  tokens.resize(static_cast<std::size_t>(size));
  tokens.back().clear();  // ends a text
  return tokens;
}

text::GrammarVocabulary read_vocabulary(const GrammarOptions& options) {
  if (options.tokenizer.empty()) {
    auto tokens = made_up_vocabulary(options.vocab_size);
    const auto end = static_cast<TokenId>(tokens.size() - 1);
    return {std::move(tokens), std::vector<TokenId>{end}};
  }
  const auto tokenizer = text::Tokenizer::load(options.tokenizer);
  const auto end = static_cast<TokenId>(tokenizer->vocab_size());
  return {*tokenizer, tokenizer->vocab_size() + 1, std::vector<TokenId>{end}};
}

struct NamedGrammar {
  std::string name;
  text::GrammarKind kind;
  std::string source;
};

std::string repeated(int count, const std::function<std::string(int)>& part) {
  std::string all;
  for (int i = 0; i < count; ++i) all += (i > 0 ? "," : "") + part(i);
  return all;
}

std::string wide_schema(bool is_required) {
  const auto property = [](int i) {
    return fmt::format(R"("property_{}": {{"type": "integer"}})", i);
  };
  const auto name = [](int i) { return fmt::format(R"("property_{}")", i); };
  return fmt::format(R"({{"type": "object", "properties": {{{}}}{}}})", repeated(200, property),
                     is_required ? R"(, "required": [)" + repeated(200, name) + "]" : "");
}

std::string tools_tag(bool is_required) {
  const auto tag = [](int i) {
    return fmt::format(
        R"({{"type": "tag", "begin": "<tool_call>\n{{\"name\": \"tool_{}\", \"arguments\": ", "content": {{"type": "json_schema",)"
        R"( "json_schema": {{"type": "object", "properties": {{"path": {{"type": "string"}}, "count": {{"type": "integer"}}}},)"
        R"( "required": ["path"]}}}}, "end": "}}\n</tool_call>"}})",
        i);
  };
  return fmt::format(
      R"({{"type": "structural_tag", "format": {{"type": "triggered_tags", "triggers": ["<tool_call>"], "tags": [{}], "at_least_one": {}}}}})",
      repeated(8, tag), is_required);
}

std::vector<NamedGrammar> named_grammars() {
  using text::GrammarKind;
  const auto word = [](int i) { return fmt::format("\"w_{}\"", i * 7919); };
  return {
      {"date", GrammarKind::kRegex, R"(\d{4}-\d{2}-\d{2})"},
      {"arithmetic", GrammarKind::kEbnf,
       "root ::= term ([-+*/] term)*\nterm ::= [0-9]+ | \"(\" root \")\""},
      {"tree", GrammarKind::kJsonSchema,
       R"({"$defs": {"n": {"type": "object", "properties": {"v": {"type": "integer"},
          "kids": {"type": "array", "items": {"$ref": "#/$defs/n"}}}, "required": ["v"]}}, "$ref": "#/$defs/n"})"},
      {"three-properties", GrammarKind::kJsonSchema,
       R"({"type": "object", "properties": {"name": {"type": "string"},
          "age": {"type": "integer"}, "tags": {"type": "array", "items": {"type": "string"}}}, "required": ["name", "age"]})"},
      {"order", GrammarKind::kJsonSchema,
       R"({"type": "object", "properties": {"id": {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{6}$"},
          "at": {"type": "string", "format": "date-time"}, "items": {"type": "array", "maxItems": 20, "items": {"$ref": "#/$defs/i"}}},
          "required": ["id", "at", "items"], "$defs": {"i": {"type": "object", "properties": {"sku": {"type": "string"},
          "n": {"type": "integer", "minimum": 1, "maximum": 99}}, "required": ["sku", "n"]}}})"},
      {"any-object", GrammarKind::kJsonObject, ""},
      {"tools-auto", GrammarKind::kStructuralTag, tools_tag(false)},
      {"tools-required", GrammarKind::kStructuralTag, tools_tag(true)},
      {"strings-of-200", GrammarKind::kJsonSchema,
       R"({"type": "object", "properties": {"name": {"type": "string", "minLength": 1, "maxLength": 100},
          "text": {"type": "string", "maxLength": 200}}, "required": ["name", "text"]})"},
      {"pattern-of-200", GrammarKind::kJsonSchema,
       R"({"type": "string", "pattern": "^[a-z ]{1,200}$"})"},
      {"letters-of-200", GrammarKind::kRegex, "[a-z ]{1,200}"},
      {"string-of-80", GrammarKind::kJsonSchema, R"({"type": "string", "maxLength": 80})"},
      {"enum-of-5000", GrammarKind::kJsonSchema, R"({"enum": [)" + repeated(5000, word) + "]}"},
      {"200-required", GrammarKind::kJsonSchema, wide_schema(true)},
      {"200-optional", GrammarKind::kJsonSchema, wide_schema(false)},
      {"sentence", GrammarKind::kRegex, R"([a-zA-Z ,]*\.)"},
      {"sentence-of-200", GrammarKind::kRegex, R"([a-zA-Z ,]{1,200}\.)"},
  };
}

/// Seconds of each mask along random texts of the grammar. Marks are more likely than among all tokens, so that
/// texts end and their parts are all seen.
std::vector<double> mask_seconds(const std::shared_ptr<const text::CompiledGrammar>& grammar,
                                 int64_t num_tokens, double& accept_seconds) {
  const SystemClock clock;
  std::vector<double> seconds;
  std::vector<uint32_t> words(static_cast<std::size_t>((grammar->width() + 31) / 32));
  auto matcher = std::make_unique<text::GrammarMatcher>(grammar);
  for (uint64_t step = 0; static_cast<int64_t>(seconds.size()) < num_tokens; ++step) {
    std::fill(words.begin(), words.end(), 0);
    const auto begin = clock.now();
    const auto allowed = matcher->allow(words);
    seconds.push_back(seconds_between(begin, clock.now()));
    if (allowed == text::GrammarMatcher::Allowed::kNone) {
      matcher = std::make_unique<text::GrammarMatcher>(grammar);
      continue;
    }
    std::vector<TokenId> marks, ids;
    for (TokenId id = 0; id < grammar->width(); ++id) {
      const bool has_bit = (words[static_cast<std::size_t>(id) / 32] >> (id % 32) & 1U) != 0;
      if (allowed != text::GrammarMatcher::Allowed::kAny && !has_bit) continue;
      ids.push_back(id);
      if (id == '"' || id == '}' || id == ']' || id == ',' || id == '.') marks.push_back(id);
    }
    const auto& from = !marks.empty() && uniform(3, step, 0) < 0.1 ? marks : ids;
    const TokenId id =
        from[static_cast<std::size_t>(uniform(3, step, 1) * static_cast<double>(from.size()))];
    const auto accepted = clock.now();
    matcher->accept(id);
    accept_seconds += seconds_between(accepted, clock.now());
  }
  return seconds;
}

void measure_grammar(const std::string& benchmark, const NamedGrammar& named,
                     const text::GrammarVocabulary& vocabulary, int64_t num_tokens) {
  const SystemClock clock;
  const auto begin = clock.now();
  const auto grammar =
      text::compile_grammar({.kind = named.kind, .source = named.source}, vocabulary);
  const double compile_seconds = seconds_between(begin, clock.now());
  double accept_seconds = 0;
  const std::vector<double> cold = mask_seconds(grammar, num_tokens, accept_seconds);
  accept_seconds = 0;
  std::vector<double> warm =
      mask_seconds(grammar, num_tokens, accept_seconds);  // along the same texts
  const double sum = std::accumulate(warm.begin(), warm.end(), 0.0);
  const double cold_sum = std::accumulate(cold.begin(), cold.end(), 0.0);
  std::sort(warm.begin(), warm.end());
  const auto count = static_cast<double>(warm.size());
  write_json_line(
      {{"benchmark", benchmark},
       {"grammar", named.name},
       {"compile_milliseconds", compile_seconds * 1e3},
       {"mask_microseconds", sum / count * 1e6},
       {"mask_p50_microseconds", warm[warm.size() / 2] * 1e6},
       {"mask_p99_microseconds", warm[warm.size() * 99 / 100] * 1e6},
       {"first_masks_milliseconds", (cold_sum - sum) * 1e3},
       {"largest_first_mask_milliseconds", *std::max_element(cold.begin(), cold.end()) * 1e3},
       {"accept_microseconds", accept_seconds / count * 1e6},
       {"megabytes", static_cast<double>(grammar->size_bytes()) * 1e-6},
       {"vocabulary", vocabulary.width()}});
}

}  // namespace

int grammar(const std::string& name, Arguments arguments) {
  GrammarOptions options;
  Flags flags(
      "Time to compile grammars, and of each token's mask along random texts of them; one JSON "
      "line each. The masks of states that "
      "no text was in before are counted apart.",
      name);
  flags.add("--tokenizer", options.tokenizer,
            "A model directory; without it a vocabulary is made up");
  flags.count("--vocab-size", options.vocab_size, "Tokens of the made-up vocabulary");
  flags.count("--tokens", options.tokens, "Masks of each grammar");
  flags.add("--only", options.only, "Grammars whose name holds this");
  if (const auto exit_code = flags.take(arguments)) return *exit_code;
  const text::GrammarVocabulary vocabulary = read_vocabulary(options);
  for (const NamedGrammar& named : named_grammars()) {
    if (named.name.find(options.only) != std::string::npos)
      measure_grammar(name, named, vocabulary, options.tokens);
  }
  return 0;
}

}  // namespace slime::bench
