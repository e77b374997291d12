#include "text/grammar/ebnf_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <utility>
#include <vector>

#include "core/error.h"
#include "text/unicode/unicode.h"

namespace slime::text {
namespace {

constexpr int kMostEbnfGroups = 100;  // in one another
constexpr int kMostEbnfNesting = 5000;
constexpr int64_t kLargestEbnfCount = 1000000;
constexpr int64_t kHugeRepetition = int64_t{1} << 40;

/// Calls of the engine, which are no part of the language.
constexpr auto kEngineCalls =
    std::to_array<std::string_view>({"TagDispatch", "Token", "ExcludeToken", "TokenTagDispatch",
                                     "Regex", "Substring", "true", "false"});

struct EbnfPlace {
  int line = 1;
  int column = 1;
};

struct EbnfExpression {
  enum class Kind : uint8_t { kTerminal, kRule, kSequence, kChoice, kRepeat };
  Kind kind = Kind::kTerminal;
  std::string_view rule = {};  // of kRule
  EbnfPlace place = {};
  int64_t min = 0, max = 0;  // of kRepeat; max 0: no bound
  std::vector<EbnfExpression> parts = {};
};

struct EbnfRule {
  EbnfPlace place;
  EbnfExpression body;
  bool ends = false;                  // with some text
  std::vector<EbnfRule*> users = {};  // that mention it
  int64_t repetition = 0;             // counts in counts, multiplied; 0: not yet known
  bool is_looked_at = false;          // while that is computed
};

class EbnfReader final {
 public:
  EbnfReader(std::string_view source, const std::string& where, const GrammarLimits& limits)
      : source_(source), where_(where), limits_(limits) {}

  void check() {
    skip_space();
    while (!at_end()) rule();
    check_names();
    find_ends();
    for (const auto& [name, rule] : rules_) {
      if (!rule.ends) fail(rule.place, fmt::format("rule {} matches nothing: it never ends", name));
    }
    for (auto& [name, rule] : rules_) check_repetition(rule);
  }

 private:
  [[noreturn]] void fail(EbnfPlace place, std::string_view problem) const {
    throw ConfigError(
        fmt::format("{}, line {}, column {}: {}", where_, place.line, place.column, problem));
  }
  [[noreturn]] void fail(std::string_view problem) const { fail(place_, problem); }

  bool at_end() const { return at_ == source_.size(); }
  char peek(std::size_t ahead = 0) const {
    return at_ + ahead < source_.size() ? source_[at_ + ahead] : '\0';
  }
  void advance(std::size_t count = 1) {
    for (; count > 0 && !at_end(); --count, ++at_) {
      if (peek() == '\n' || (peek() == '\r' && peek(1) != '\n')) {
        ++place_.line;
        place_.column = 1;
      } else if ((static_cast<uint8_t>(peek()) & 0xc0) != 0x80) {
        ++place_.column;
      }
    }
  }
  void skip_space() {
    while (!at_end()) {
      if (peek() == '#') {
        while (!at_end() && peek() != '\n' && peek() != '\r') advance();
      } else if (peek() == ' ' || peek() == '\t' || peek() == '\n' || peek() == '\r') {
        advance();
      } else {
        return;
      }
    }
  }
  bool take(char character) {
    if (peek() != character || at_end()) return false;
    advance();
    skip_space();
    return true;
  }

  static bool is_name(char c, bool is_first) {
    return c == '_' || c == '-' || c == '.' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (!is_first && c >= '0' && c <= '9');
  }
  std::string_view name() {
    const std::size_t begin = at_;
    while (is_name(peek(), at_ == begin)) advance();
    return source_.substr(begin, at_ - begin);
  }
  /// A name and ::= begin a rule.
  bool at_rule() const {
    std::size_t ahead = 0;
    while (is_name(peek(ahead), ahead == 0)) ++ahead;
    if (ahead == 0) return false;
    while (peek(ahead) == ' ' || peek(ahead) == '\t') ++ahead;
    return peek(ahead) == ':' && peek(ahead + 1) == ':' && peek(ahead + 2) == '=';
  }

  void rule() {
    const EbnfPlace place = place_;
    if (!at_rule()) fail("a rule is expected: a name and ::=");
    const std::string_view rule_name = name();
    if (is_call(rule_name))
      fail(place, fmt::format("{} is a word of the engine's, not a rule's name", rule_name));
    skip_space();
    advance(3);
    skip_space();
    if (static_cast<int>(rules_.size()) >= limits_.num_rules)
      fail(place, fmt::format("more than {} rules", limits_.num_rules));
    const auto [at, is_new] = rules_.try_emplace(rule_name, EbnfRule{place, {}});
    if (!is_new) fail(place, fmt::format("rule {} is there twice", rule_name));
    at->second.body = choice();
    if (!at_end() && !at_rule()) fail(fmt::format("{} cannot stand here", shown()));
  }

  std::string shown() const {
    if (at_end()) return "the end";
    if (peek() == '(' && peek(1) == '=') return "a lookahead (=";
    std::size_t size = 1;
    while ((static_cast<uint8_t>(peek(size)) & 0xc0) == 0x80) ++size;
    return fmt::format("\"{}\"", source_.substr(at_, size));
  }

  static bool is_call(std::string_view word) {
    return word == kEbnfWholeName ||
           std::find(kEngineCalls.begin(), kEngineCalls.end(), word) != kEngineCalls.end();
  }

  EbnfExpression choice() {
    EbnfExpression all{.kind = EbnfExpression::Kind::kChoice, .place = place_};
    do {
      all.parts.push_back(sequence());
    } while (take('|'));
    return all;
  }

  bool at_element() const {
    return peek() == '"' || peek() == '[' || (peek() == '(' && peek(1) != '=') ||
           (is_name(peek(), true) && !at_rule());
  }

  EbnfExpression sequence() {
    EbnfExpression all{.kind = EbnfExpression::Kind::kSequence, .place = place_};
    if (!at_element())
      fail(fmt::format("a text, class, group or rule is expected, not {}", shown()));
    while (at_element()) all.parts.push_back(counted());
    return all;
  }

  EbnfExpression counted() {
    const EbnfPlace place = place_;
    EbnfExpression part = element();
    EbnfExpression repeat{.kind = EbnfExpression::Kind::kRepeat, .place = place};
    if (take('+')) {
      repeat.min = 1;
    } else if (take('?')) {
      repeat.max = 1;
    } else if (take('{')) {
      count(repeat);
    } else if (!take('*')) {
      return part;
    }
    if (peek() == '*' || peek() == '+' || peek() == '?' || peek() == '{')
      fail("a count of a count; use a group");
    repeat.parts.push_back(std::move(part));
    return repeat;
  }

  void count(EbnfExpression& repeat) {
    repeat.min = number();
    if (take(',')) {
      if (peek() != '}') {
        repeat.max = number();
        if (repeat.max < repeat.min) fail("the count's second number is smaller than its first");
        if (repeat.max == 0) repeat.max = 1;  // {0,0}; 0 means unbounded here
      }
    } else {
      repeat.max = std::max<int64_t>(repeat.min, 1);
    }
    if (!take('}')) fail(fmt::format("a count ends with }}, not {}", shown()));
  }

  int64_t number() {
    if (peek() < '0' || peek() > '9') fail(fmt::format("a number is expected, not {}", shown()));
    int64_t value = 0;
    while (peek() >= '0' && peek() <= '9') {
      value = value * 10 + (peek() - '0');
      if (value > kLargestEbnfCount) fail(fmt::format("counts are at most {}", kLargestEbnfCount));
      advance();
    }
    skip_space();
    return value;
  }

  EbnfExpression element() {
    const EbnfPlace place = place_;
    if (peek() == '"') {
      quoted(place);
    } else if (peek() == '[') {
      bracketed(place);
    } else if (peek() == '(') {
      return group(place);
    } else {
      const std::string_view word = name();
      if (is_call(word)) fail(place, fmt::format("{} is not supported in an EBNF", word));
      skip_space();
      return {.kind = EbnfExpression::Kind::kRule, .rule = word, .place = place};
    }
    skip_space();
    return {.place = place};
  }

  EbnfExpression group(EbnfPlace place) {
    if (++depth_ > kMostEbnfGroups)
      fail(place, fmt::format("more than {} groups in one another", kMostEbnfGroups));
    take('(');
    EbnfExpression inside;
    if (peek() != ')') inside = choice();
    if (!take(')'))
      fail(place, fmt::format("this group is not closed: {} stands where ) or | should", shown()));
    --depth_;
    return inside;
  }

  void quoted(EbnfPlace place) {
    advance();
    while (peek() != '"') {
      if (at_end() || peek() == '\n' || peek() == '\r') fail(place, "this text is not closed");
      if (peek() == '\\') check_escape();
      advance(peek() == '\\' ? 2 : 1);
    }
    advance();
  }

  /// The engine never matches a NUL in a text. Wrong escapes are told by the engine, with their place.
  void check_escape() const {
    const std::size_t digits = peek(1) == 'x' ? 2 : peek(1) == 'u' ? 4 : peek(1) == 'U' ? 8 : 0;
    bool is_zero = digits > 0 || peek(1) == '0';
    for (std::size_t i = 0; i < digits; ++i) is_zero &= peek(2 + i) == '0';
    if (is_zero) fail("a text cannot hold a NUL character");
  }

  void bracketed(EbnfPlace place) {
    advance();
    if (peek() == '^') advance();
    if (peek() == ']') fail(place, "this class is empty");
    while (peek() != ']') {
      if (at_end() || peek() == '\n' || peek() == '\r') fail(place, "this class is not closed");
      advance(peek() == '\\' ? 2 : 1);
    }
    advance();
  }

  void check_names() {
    if (!rules_.contains("root"))
      fail({1, 1}, "there is no rule root, with which a text begins: root ::= ...");
    for (const auto& [name, rule] : rules_) check_names(rule.body);
  }
  void check_names(const EbnfExpression& expression) const {
    if (expression.kind == EbnfExpression::Kind::kRule && !rules_.contains(expression.rule))
      fail(expression.place, fmt::format("rule {} is not defined", expression.rule));
    for (const EbnfExpression& part : expression.parts) check_names(part);
  }

  /// A rule ends if its body can be written with rules that end.
  void find_ends() {
    std::vector<EbnfRule*> unsure;
    for (auto& [name, rule] : rules_) {
      find_users(rule.body, rule);
      unsure.push_back(&rule);
    }
    while (!unsure.empty()) {
      EbnfRule& rule = *unsure.back();
      unsure.pop_back();
      if (rule.ends || !ends(rule.body)) continue;
      rule.ends = true;
      unsure.insert(unsure.end(), rule.users.begin(), rule.users.end());
    }
  }
  void find_users(const EbnfExpression& expression, EbnfRule& user) {
    if (expression.kind == EbnfExpression::Kind::kRule) {
      auto& users = rules_.at(expression.rule).users;
      if (users.empty() || users.back() != &user) users.push_back(&user);
    }
    for (const EbnfExpression& part : expression.parts) find_users(part, user);
  }
  bool ends(const EbnfExpression& expression) const {
    const auto part_ends = [&](const EbnfExpression& part) { return ends(part); };
    switch (expression.kind) {
      case EbnfExpression::Kind::kTerminal:
        return true;
      case EbnfExpression::Kind::kRule:
        return rules_.at(expression.rule).ends;
      case EbnfExpression::Kind::kChoice:
        return std::any_of(expression.parts.begin(), expression.parts.end(), part_ends);
      case EbnfExpression::Kind::kSequence:
        return std::all_of(expression.parts.begin(), expression.parts.end(), part_ends);
      case EbnfExpression::Kind::kRepeat:
        return expression.min == 0 || ends(expression.parts.front());
    }
    return false;
  }

  int64_t check_repetition(EbnfRule& rule) {
    if (rule.repetition > 0) return rule.repetition;
    if (rule.is_looked_at) return 1;  // recursive: its counts are counted once
    rule.is_looked_at = true;
    const int64_t product = repetition(rule.body);
    rule.is_looked_at = false;
    if (product > limits_.repetition) {
      fail(rule.place,
           fmt::format("counts in counts are {} in all, at most {} are allowed; use * or +",
                       product >= kHugeRepetition ? "huge" : std::to_string(product),
                       limits_.repetition));
    }
    return rule.repetition = product;
  }
  int64_t repetition(const EbnfExpression& expression) {
    if (++nesting_ > kMostEbnfNesting)
      fail(expression.place,
           fmt::format("rules and groups in one another, more than {} deep", kMostEbnfNesting));
    int64_t product = 1;
    if (expression.kind == EbnfExpression::Kind::kRule)
      product = check_repetition(rules_.at(expression.rule));
    for (const EbnfExpression& part : expression.parts)
      product = std::max(product, repetition(part));
    --nesting_;
    if (expression.kind == EbnfExpression::Kind::kRepeat)
      product = std::min(kHugeRepetition,
                         product * std::max<int64_t>({expression.min, expression.max, 1}));
    return product;
  }

  std::string_view source_;
  const std::string& where_;
  const GrammarLimits& limits_;
  std::size_t at_ = 0;
  EbnfPlace place_;
  int depth_ = 0;
  int nesting_ = 0;  // of expressions and rules that are looked at
  std::map<std::string_view, EbnfRule> rules_;
};

}  // namespace

void check_ebnf(std::string_view source, const std::string& where, const GrammarLimits& limits) {
  if (source.size() > limits.text_bytes) {
    throw ConfigError(fmt::format("{} has {} bytes, at most {} are allowed", where, source.size(),
                                  limits.text_bytes));
  }
  if (!is_valid_utf8(source)) throw ConfigError(where + " is not UTF-8");
  if (source.find('\0') != std::string_view::npos)
    throw ConfigError(where + " holds a NUL character, which cannot be matched");
  EbnfReader(source, where, limits).check();
}

}  // namespace slime::text
