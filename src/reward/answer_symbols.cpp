#include "reward/answer_parser.h"

#include <algorithm>
#include <array>

#include "reward/number_words.h"
#include "reward/python_text.h"

namespace slime::reward {
namespace {

constexpr auto kPlainFunctions = std::to_array<std::string_view>(
    {"arcsin", "arccos", "arctan", "arccot", "sinh", "cosh", "tanh", "sin",  "cos", "tan",
     "cot",    "sec",    "csc",    "ln",     "log",  "lg",   "exp",  "gcd",  "lcm", "max",
     "min",    "sqrt",   "binom",  "floor",  "ceil", "abs",  "asin", "acos", "atan"});

constexpr auto kConstants = std::to_array<std::string_view>(
    {"alpha", "beta",   "gamma", "delta", "epsilon", "zeta",  "eta",     "theta", "iota",
     "kappa", "lambda", "mu",    "nu",    "xi",      "rho",   "sigma",   "tau",   "phi",
     "chi",   "psi",    "omega", "Gamma", "Delta",   "Theta", "Lambda",  "Sigma", "Phi",
     "Omega", "Psi",    "ell",   "hbar",  "Pi",      "Xi",    "partial", "nabla"});

template <std::size_t N>
bool is_one_of(const std::array<std::string_view, N>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

bool is_function_name(std::string_view name) { return is_one_of(kPlainFunctions, name); }

bool is_symbol_command(std::string_view name) { return is_one_of(kConstants, name); }

AnswerParser::Maybe AnswerParser::primary() {
  return deeper([&]() -> Maybe {
    const char c = next();
    if (c == '\0') return std::nullopt;
    if (is_digit(c) || c == '.') return number();
    if (c == '(' || c == '[' || c == ']') return bracketed();
    if (c == '{') return braced();
    if (c == '|') return bars();
    if (is_letter(c)) return letters();
    if (c == '\\') return commanded();
    return std::nullopt;
  });
}

AnswerParser::Maybe AnswerParser::letters() {
  const std::string_view all = word();
  if (is_function_name(all)) {
    at_ += all.size();
    return maybe_answer(function(std::string(all)));
  }
  if (all == "pi") {
    at_ += 2;
    return answer_of({FormulaKind::kPi, ""});
  }
  if (const auto number = number_in_words(std::string_view(text_).substr(at_))) {
    at_ += number->second;
    return answer_of(number->first);
  }
  const std::string lower = to_lower(all);
  if (lower == "infinity" || lower == "infty" || lower == "inf") {
    at_ += all.size();
    return answer_of({FormulaKind::kInfinity, ""});
  }
  // A point with its name, A(1, 2), and C(n, k).
  if (all.size() == 1 && all[0] >= 'A' && all[0] <= 'Z' && tuple_follows()) {
    ++at_;
    skip();
    Maybe inside = bracketed();
    const bool is_pair = inside && inside->kind == AnswerKind::kTuple &&
                         inside->parts.size() == 2 && is_plain(inside->parts[0]) &&
                         is_plain(inside->parts[1]);
    if (!is_pair || (all != "C" && all != "P")) return inside;
    std::vector<Formula> args = one(std::move(inside->parts[0].formula));
    args.push_back(std::move(inside->parts[1].formula));
    return answer_of(function_of(all == "C" ? "binom" : "permutations", std::move(args)));
  }
  if (all.size() > 3 || (all.size() > 1 && any_text_from_here())) return std::nullopt;
  for (const char* no_symbols : {"and", "or", "is", "not", "no", "yes", "the", "of", "if"}) {
    if (lower == no_symbols) return std::nullopt;
  }
  return maybe_answer(symbol(1));
}

bool AnswerParser::tuple_follows() const {
  std::size_t i = at_ + 1;
  while (i < text_.size() && text_[i] == ' ') ++i;
  if (i >= text_.size() || text_[i] != '(') return false;
  int open = 0;
  for (; i < text_.size(); ++i) {
    if (text_[i] == '(' || text_[i] == '{') ++open;
    if (text_[i] == ',' && open == 1) return true;
    if ((text_[i] == ')' || text_[i] == '}') && --open == 0) return false;
  }
  return false;
}

AnswerParser::Maybe AnswerParser::maybe_answer(MaybeFormula formula) {
  if (!formula) return std::nullopt;
  return answer_of(std::move(*formula));
}

AnswerParser::MaybeFormula AnswerParser::symbol(std::size_t length) {
  std::string name = text_.substr(at_, length);
  at_ += length;
  return indexed(std::move(name));
}

AnswerParser::MaybeFormula AnswerParser::indexed(std::string name) {
  if (next() != '_') {
    if (name == "e") return Formula{FormulaKind::kE, ""};
    if (name == "i") return Formula{FormulaKind::kI, ""};
    return symbol_formula(std::move(name));
  }
  ++at_;
  skip();
  const std::optional<std::string> index = index_text();
  if (!index) return std::nullopt;
  return symbol_formula(name + "_" + *index);
}

std::optional<std::string> AnswerParser::index_text() {
  if (at_ >= text_.size()) return std::nullopt;
  std::string out;
  if (text_[at_] == '{') {
    int open = 0;
    for (; at_ < text_.size(); ++at_) {
      if (text_[at_] == '{') ++open;
      if (text_[at_] == '}' && --open == 0) {
        ++at_;
        return out;
      }
      if (text_[at_] != ' ' && text_[at_] != '{' && text_[at_] != '}') out += text_[at_];
    }
    return std::nullopt;
  }
  if (is_digit(text_[at_])) {
    while (at_ < text_.size() && is_digit(text_[at_])) out += text_[at_++];
    return out;
  }
  if (is_letter(text_[at_])) return std::string(1, text_[at_++]);
  const std::string_view name = command();
  if (name.empty()) return std::nullopt;
  out = "\\" + std::string(name);
  at_ += name.size() + 1;
  return out;
}

}  // namespace slime::reward
