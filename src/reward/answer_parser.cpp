#include <algorithm>
#include <array>
#include <initializer_list>

#include "reward/answer.h"
#include "reward/number_words.h"
#include "reward/python_text.h"

namespace slime::reward {
namespace {

using AnswerKind = Answer::Kind;
using FormulaKind = Formula::Kind;

constexpr std::size_t kMostCharacters = 2'000;
constexpr int kDeepest = 120;
constexpr std::size_t kMostParts = 200;

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

bool is_formula(const Answer& answer) {
  return answer.kind == AnswerKind::kFormula && !answer.unit;
}

Answer answer_of(Formula formula) {
  Answer answer;
  answer.kind = AnswerKind::kFormula;
  answer.formula = std::move(formula);
  return answer;
}

/// Scalar times matrix, element by element.
Answer scaled(const Formula& by, Answer matrix) {
  for (Answer& part : matrix.parts) {
    part.formula = binary(FormulaKind::kProduct, by, std::move(part.formula));
  }
  return matrix;
}

/// Determinant by the first row; nothing for what is not square or larger than 4.
std::optional<Formula> determinant(const std::vector<Formula>& cells, std::size_t size) {
  if (size == 0 || size > 4 || cells.size() != size * size) return std::nullopt;
  if (size == 1) return cells[0];
  Formula sum{FormulaKind::kSum, ""};
  for (std::size_t column = 0; column < size; ++column) {
    std::vector<Formula> minor;
    for (std::size_t i = size; i < cells.size(); ++i) {
      if (i % size != column) minor.push_back(cells[i]);
    }
    Formula term = binary(FormulaKind::kProduct, cells[column], *determinant(minor, size - 1));
    sum.args.push_back(column % 2 == 0 ? std::move(term)
                                       : unary(FormulaKind::kNegative, std::move(term)));
  }
  return sum;
}

/// Recursive descent over the text; a function that returns nothing or false has failed, which ends
/// everything: the answer is a text then.
class AnswerParser {
 public:
  AnswerParser(const PlainLatex& plain, bool keeps_commas)
      : plain_(plain), text_(plain.text), keeps_commas_(keeps_commas) {}

  std::optional<Answer> run() {
    std::optional<Answer> answer = list("");
    skip();
    if (!answer || at_ < text_.size()) return std::nullopt;
    return answer;
  }

 private:
  using Maybe = std::optional<Answer>;
  using MaybeFormula = std::optional<Formula>;

  // --- characters -----------------------------------------------------------------------------

  void skip() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  bool at_end() {
    skip();
    return at_ >= text_.size();
  }
  char next() {
    skip();
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool at(std::string_view what) {
    skip();
    return std::string_view(text_).substr(at_).starts_with(what);
  }
  bool accept(std::string_view what) {
    if (!at(what)) return false;
    at_ += what.size();
    return true;
  }
  /// Letters from here, without a backslash.
  std::string_view word() {
    skip();
    std::size_t end = at_;
    while (end < text_.size() && is_letter(text_[end])) ++end;
    return std::string_view(text_).substr(at_, end - at_);
  }
  /// The name of the command here; empty: there is none.
  std::string_view command() {
    if (next() != '\\') return {};
    std::size_t end = at_ + 1;
    while (end < text_.size() && is_letter(text_[end])) ++end;
    return std::string_view(text_).substr(at_ + 1, end - at_ - 1);
  }
  bool accept_command(std::string_view name) {
    if (command() != name) return false;
    at_ += name.size() + 1;
    return true;
  }
  bool accept_word(std::string_view name) {
    if (to_lower(word()) != name) return false;
    at_ += name.size();
    return true;
  }

  template <typename Rule>
  auto deeper(const Rule& rule) -> decltype(rule()) {
    if (++depth_ > kDeepest) return {};
    auto out = rule();
    --depth_;
    return out;
  }

  // --- lists, relations, sets -----------------------------------------------------------------

  /// What separates the parts of a list: "," ";" "and" "or", the end of a row. Empty: nothing does.
  std::string separator() {
    std::string found;
    while (true) {
      if (accept(",")) {
        if (found.empty()) found = ",";
      } else if (accept(";")) {
        if (found.empty()) found = ",";
      } else if (accept("\\\\")) {
        if (found.empty()) found = ",";
      } else if (accept_word("and") || accept_command("land") || accept_command("wedge") ||
                 accept("&")) {
        found = "and";
      } else if (accept_word("or") || accept_command("lor") || accept_command("vee")) {
        found = "or";
      } else {
        return found;
      }
    }
  }

  /// Parts up to `close` (not read) or the end of the text.
  Maybe list(std::string_view close) {
    return deeper([&]() -> Maybe {
      Answer all;
      all.kind = AnswerKind::kList;
      while (true) {
        if (at_end() || (!close.empty() && closes(close))) break;
        Maybe part = item();
        if (!part || all.parts.size() == kMostParts) return std::nullopt;
        all.parts.push_back(std::move(*part));
        std::string between = separator();
        if (between.empty()) break;
        all.signs.push_back(std::move(between));
      }
      if (all.parts.empty()) return all;
      all.signs.resize(all.parts.size() - 1);
      if (all.parts.size() == 1) return std::move(all.parts[0]);
      return all;
    });
  }

  bool closes(std::string_view close) {
    return std::ranges::any_of(close, [this](char c) {
      return c == '}' ? at("}") || at("\\}") : at(std::string_view(&c, 1));
    });
  }

  std::string relation_sign() {
    for (const std::string_view sign : {"=", "<", ">"}) {
      if (accept(sign)) return std::string(sign);
    }
    for (const std::string_view name : {"le", "ge", "ne", "in", "approx", "equiv", "cong"}) {
      if (accept_command(name)) return name == "approx" ? "=" : "\\" + std::string(name);
    }
    return {};
  }

  /// Words in front of an answer: "The answer is 5", "Area = 12", "Total: 12".
  void skip_lead() {
    const std::size_t begin = at_;
    std::size_t i = at_;
    int num_words = 0;
    bool has_long_word = false;
    while (i < text_.size()) {
      while (i < text_.size() && text_[i] == ' ') ++i;
      std::size_t end = i;
      while (end < text_.size() && is_letter(text_[end])) ++end;
      if (end == i) break;
      const std::string lower = to_lower(std::string_view(text_).substr(i, end - i));
      for (const char* bad :
           {"not", "more", "less", "most", "least", "between", "no", "and", "or", "than", "except",
            "without", "sqrt", "sin", "cos", "tan", "ln", "log", "never"}) {
        if (lower == bad) return;
      }
      has_long_word = has_long_word || lower.size() > 3;
      ++num_words;
      i = end;
      const bool ends_lead = (lower == "is" || lower == "are" || lower == "approximately" ||
                              lower == "about" || lower == "equals") &&
                             i < text_.size();
      if (ends_lead) {
        at_ = i;
        while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == ':')) ++at_;
        return skip_lead();
      }
    }
    if (num_words == 0 || !has_long_word || i >= text_.size()) return;
    if (text_[i] != ':' && text_[i] != '=') return;
    at_ = i + 1;
    if (at_end()) at_ = begin;
  }

  Maybe item() {
    skip();
    while (accept_command("approx") || accept_command("implies") || accept_command("Rightarrow")) {
    }
    skip_lead();
    return relation();
  }

  Maybe relation() {
    Maybe first = ratio();
    if (!first) return std::nullopt;
    std::string sign = relation_sign();
    if (sign.empty()) return first;
    Answer chain;
    chain.kind = AnswerKind::kRelation;
    chain.parts.push_back(std::move(*first));
    while (!sign.empty()) {
      Maybe side = ratio();
      if (!side || chain.parts.size() > 20) return std::nullopt;
      chain.signs.push_back(sign);
      chain.parts.push_back(std::move(*side));
      sign = relation_sign();
    }
    return chain;
  }

  Maybe ratio() {
    Maybe first = sets();
    if (!first || in_builder_ || !(at(":") || half_of_day() || to_lower(word()) == "to")) {
      return first;
    }
    Answer all;
    all.kind = AnswerKind::kRatio;
    all.parts.push_back(std::move(*first));
    while (accept(":") || accept_word("to")) {
      Maybe side = sets();
      if (!side || all.parts.size() == kMostParts) return std::nullopt;
      all.parts.push_back(std::move(*side));
    }
    // "11:45 a.m."
    while (!at_end() && (is_letter(next()) || next() == '.')) {
      const std::string lower = to_lower(word());
      if (lower == "and" || lower == "or") break;
      if (lower.empty()) {
        ++at_;
        continue;
      }
      at_ += lower.size();
      all.text += lower;
    }
    return all;
  }

  Maybe sets() {
    Maybe left = quantity();
    while (left) {
      std::string sign;
      for (const char* name : {"cup", "cap", "setminus"}) {
        if (accept_command(name)) sign = std::string("\\") + name;
      }
      const bool is_set = left->kind == AnswerKind::kNumbers || left->kind == AnswerKind::kSet ||
                          left->kind == AnswerKind::kTuple || left->kind == AnswerKind::kOperation;
      if (sign.empty() && is_set && accept("-")) sign = "\\setminus";
      if (sign.empty()) return left;
      Maybe right = quantity();
      if (!right) return std::nullopt;
      Answer both;
      both.kind = AnswerKind::kOperation;
      both.text = sign;
      both.parts.push_back(std::move(*left));
      both.parts.push_back(std::move(*right));
      if (++num_operations_ > 100) return std::nullopt;
      left = std::move(both);
    }
    return left;
  }

  // --- quantities -----------------------------------------------------------------------------

  /// An expression with what may stand around it: currency, unit, percent, degrees, "mod 7".
  Maybe quantity() {
    std::optional<Unit> money;
    const std::size_t begin = at_;
    const bool is_negative = at("-") && [&] {
      const std::size_t here = at_;
      ++at_;
      const bool is_money = !command().empty() && currency_name(command()) != nullptr;
      if (!is_money) at_ = here;
      return is_money;
    }();
    if (const char* name = currency_name(command())) {
      at_ += command().size() + 1;
      money = currency(name);
    }
    if (!money) at_ = begin;
    Maybe value = expression();
    if (!value) return std::nullopt;
    if (is_negative && is_formula(*value))
      value->formula = unary(FormulaKind::kNegative, std::move(value->formula));
    if (value->kind != AnswerKind::kFormula) return value;
    if (!unit_behind(*value)) return std::nullopt;
    if (money && (!value->unit || value->unit->has_count)) value->unit = money;
    if (accept_command("pmod") || accept_command("bmod") || at("(mod"))
      return residue(std::move(*value));
    return value;
  }

  static const char* currency_name(std::string_view command) {
    if (command == "dollar") return "dollar";
    if (command == "euro") return "euro";
    if (command == "pounds") return "pound sterling";
    if (command == "yen") return "yen";
    return nullptr;
  }

  Maybe residue(Answer of) {
    Answer out;
    out.kind = AnswerKind::kResidue;
    out.text = std::string_view(text_).substr(0, at_).ends_with("bmod") ? "bmod" : "pmod";
    if (accept("(mod")) {
      MaybeFormula by = scalar();
      if (!by || !accept(")")) return std::nullopt;
      out.parts.push_back(std::move(of));
      out.parts.push_back(answer_of(std::move(*by)));
      return out;
    }
    MaybeFormula by = scalar();
    if (!by) return std::nullopt;
    out.parts.push_back(std::move(of));
    out.parts.push_back(answer_of(std::move(*by)));
    return out;
  }

  /// Reads what stands behind a value; false: it is nothing that can stand there.
  bool unit_behind(Answer& value) {
    if (accept("%")) {
      value.unit = Unit{};
      value.unit->is_percent = true;
      return true;
    }
    // A sum of degrees stays one formula; a number of them has them as its unit.
    if (value.formula.kind == FormulaKind::kFunction && value.formula.text == "degree") {
      Formula of = std::move(value.formula.args[0]);
      value.formula = std::move(of);
      value.unit = Unit{};
      value.unit->is_degree = true;
      return true;
    }
    if (value.formula.kind == FormulaKind::kNegative &&
        value.formula.args[0].kind == FormulaKind::kFunction &&
        value.formula.args[0].text == "degree") {
      Formula of = std::move(value.formula.args[0].args[0]);
      value.formula = unary(FormulaKind::kNegative, std::move(of));
      value.unit = Unit{};
      value.unit->is_degree = true;
      return true;
    }
    for (const auto& [name, text] :
         {std::pair<std::string_view, const char*>{"dollar", "dollar"}, {"euro", "euro"}}) {
      if (accept_command(name)) {
        value.unit = currency(text);
        return true;
      }
    }
    const bool is_number = !any_node(value.formula, [](const Formula& node) {
      return node.kind == FormulaKind::kSymbol || node.kind == FormulaKind::kInfinity;
    });
    if (!is_letter(next())) return true;
    // "10th", "7^{th}" went with the number; here words.
    std::string lower = to_lower(word());
    if (lower == "and" || lower == "or" || lower == "mod" || lower == "to") return true;
    if (half_of_day()) return true;  // "9 a.m.": read by ratio()
    if (lower == "choose" || lower == "if" || lower == "where" || lower == "for") return false;
    if (const auto zeros = multiplier(lower)) {
      at_ += lower.size();
      value.formula =
          binary(FormulaKind::kProduct, std::move(value.formula),
                 number_formula("1" + std::string(static_cast<std::size_t>(*zeros), '0')));
      if (!is_letter(next())) return true;
      lower = to_lower(word());
      if (lower == "and" || lower == "or") return true;
    }
    if (!is_number && !any_text_from_here()) return false;
    std::optional<Unit> unit = read_unit(plain_, at_, text_.size(), /*may_count=*/true);
    if (!unit) return false;
    // "1 hour 30 minutes"
    if (!unit->has_count && is_digit(next())) {
      Maybe rest = expression();
      if (!rest || rest->kind != AnswerKind::kFormula || !unit_behind(*rest) || !rest->unit ||
          rest->unit->powers != unit->powers) {
        return false;
      }
      Formula sum = binary(FormulaKind::kSum, in_base_units(value.formula, *unit),
                           in_base_units(rest->formula, *rest->unit));
      value.formula = std::move(sum);
      unit->numerator = unit->denominator = "1";
    }
    if (unit->is_none()) unit.reset();
    value.unit = std::move(unit);
    return true;
  }

  /// "am", "p.m." here.
  bool half_of_day() {
    const std::string rest = to_lower(std::string_view(text_).substr(at_, 5));
    for (const char* each : {"a.m", "p.m", "am", "pm", "a. m", "p. m"}) {
      if (rest.starts_with(each)) return true;
    }
    return false;
  }

  bool any_text_from_here() { return at_ < plain_.is_text.size() && plain_.is_text[at_]; }

  static Formula in_base_units(const Formula& value, const Unit& unit) {
    return quotient_of(binary(FormulaKind::kProduct, value, number_formula(unit.numerator)),
                       number_formula(unit.denominator));
  }

  // --- expressions ----------------------------------------------------------------------------

  /// The next expression, which has to be a scalar.
  MaybeFormula scalar() {
    Maybe value = expression();
    if (!value || !is_formula(*value)) return std::nullopt;
    return std::move(value->formula);
  }

  Maybe expression() {
    return deeper([&]() -> Maybe {
      Maybe first = signed_product();
      if (!first) return std::nullopt;
      if (!is_formula(*first)) return first;
      Formula sum{FormulaKind::kSum, ""};
      sum.args.push_back(std::move(first->formula));
      while (true) {
        skip();
        const std::size_t here = at_;
        std::string sign;
        if (accept("+")) {
          sign = "+";
        } else if (accept("-")) {
          sign = "-";
        } else if (accept_command("pm")) {
          sign = "\\pm";
        } else if (accept_command("mp")) {
          sign = "\\mp";
        }
        if (sign.empty()) break;
        if (sum.args.size() > 1'000) return std::nullopt;
        if (sign == "+" && accept_command("ldots")) {
          at_ = here;
          return std::nullopt;  // 1 + 2 + ... + n
        }
        Maybe next = signed_product();
        if (!next || !is_formula(*next)) return std::nullopt;
        sum.args.push_back(with_sign(sign, std::move(next->formula)));
      }
      if (sum.args.size() == 1) return answer_of(std::move(sum.args[0]));
      return answer_of(std::move(sum));
    });
  }

  static Formula with_sign(const std::string& sign, Formula of) {
    if (sign == "+") return of;
    if (sign == "-") return unary(FormulaKind::kNegative, std::move(of));
    Formula either = unary(FormulaKind::kEither, std::move(of));
    either.text = sign == "\\pm" ? "+" : "-";
    return either;
  }

  Maybe signed_product() {
    std::string sign;
    int num_signs = 0;
    bool is_negative = false;
    std::string either;
    while (true) {
      if (accept("+")) {
      } else if (accept("-")) {
        is_negative = !is_negative;
      } else if (accept_command("pm")) {
        either = "\\pm";
      } else if (accept_command("mp")) {
        either = "\\mp";
      } else {
        break;
      }
      if (++num_signs > 20) return std::nullopt;
    }
    Maybe of = product();
    if (!of || (!is_negative && either.empty())) return of;
    if (of->kind == AnswerKind::kMatrix && is_negative)
      return scaled(unary(FormulaKind::kNegative, number_formula("1")), std::move(*of));
    if (!is_formula(*of)) return std::nullopt;
    if (is_negative) of->formula = unary(FormulaKind::kNegative, std::move(of->formula));
    if (!either.empty()) of->formula = with_sign(either, std::move(of->formula));
    return of;
  }

  Maybe product() {
    Maybe first = power();
    if (!first) return std::nullopt;
    Formula all{FormulaKind::kProduct, ""};
    if (is_formula(*first)) {
      all.args.push_back(std::move(first->formula));
    } else {
      return first;
    }
    while (true) {
      skip();
      bool divides = false;
      if (accept("*")) {
      } else if (accept("/")) {
        divides = true;
      } else if (!starts_factor()) {
        break;
      }
      if (all.args.size() > 1'000) return std::nullopt;
      std::size_t num_signs = 0;
      bool is_negative = false;
      while ((divides || text_[at_ > 0 ? at_ - 1 : 0] == '*' || num_signs > 0) && at("-")) {
        accept("-");
        is_negative = !is_negative;
        if (++num_signs > 20) return std::nullopt;
      }
      Maybe next = power();
      if (!next) return std::nullopt;
      if (next->kind == AnswerKind::kMatrix && !divides && !is_negative) {
        return scaled(all.args.size() == 1 ? all.args[0] : all, std::move(*next));
      }
      if (!is_formula(*next)) return std::nullopt;
      Formula factor = std::move(next->formula);
      if (divides) factor = unary(FormulaKind::kInverse, std::move(factor));
      if (is_negative) factor = unary(FormulaKind::kNegative, std::move(factor));
      all.args.push_back(std::move(factor));
    }
    if (all.args.size() == 1) return answer_of(std::move(all.args[0]));
    return answer_of(std::move(all));
  }

  /// Whether what follows multiplies what was read.
  bool starts_factor() {
    const char c = next();
    if (c == '\0') return false;
    if (c == '(') return !at("(mod");
    if (c == '{') return true;
    if (c == '|') return !in_builder_ && num_bars_ == 0;
    if (is_letter(c)) return starts_symbol();
    if (is_digit(c)) return at_ > 0 && !is_digit(last_character()) && last_character() != '.';
    if (c != '\\') return false;
    const std::string_view name = command();
    return name == "frac" || name == "sqrt" || name == "pi" || name == "binom" ||
           name == "lfloor" || name == "lceil" || name == "infty" || name == "sum" ||
           name == "prod" || name == "overline" || name == "vec" || name == "hat" ||
           name == "bar" || is_one_of(kConstants, name) || is_one_of(kPlainFunctions, name) ||
           name == "begin";
  }

  char last_character() const {
    std::size_t i = at_;
    while (i > 0 && text_[i - 1] == ' ') --i;
    return i > 0 ? text_[i - 1] : '\0';
  }

  /// Letters that are symbols: one letter, or a run of two or three outside of words, or a function.
  bool starts_symbol() {
    const std::string_view letters = word();
    if (half_of_day()) return false;
    // Minutes, not the least of something.
    if (letters == "min" && !std::string_view(text_).substr(at_ + 3).starts_with("(")) return false;
    if (is_one_of(kPlainFunctions, letters) || letters == "pi" || letters == "infty") return true;
    if (letters.size() == 1) {
      // A unit in \text{}, or one letter behind a space: "5 m".
      if (any_text_from_here()) return letters == "e" || letters == "i" || letters == "d";
      const bool is_spaced =
          at_ > 0 && text_[at_ - 1] == ' ' && at_ > 1 && is_digit(text_[at_ - 2]);
      const bool is_unit = letters == "m" || letters == "g" || letters == "s" || letters == "L" ||
                           letters == "h" || letters == "N" || letters == "J" || letters == "W";
      return !(is_spaced && is_unit && at_ + 1 >= text_.size());
    }
    if (any_text_from_here()) return false;
    const std::string lower = to_lower(letters);
    if (lower == "and" || lower == "or" || lower == "mod" || lower == "to") return false;
    if (letters.size() > 3) return false;
    // Behind a number two or three letters may be a unit: 5 cm.
    std::size_t i = at_;
    return !(is_digit(last_character()) && read_unit(plain_, i, text_.size(), false));
  }

  Maybe power() {
    return deeper([&]() -> Maybe {
      Maybe base = primary();
      if (!base || !is_formula(*base)) return base;
      Formula of = std::move(base->formula);
      for (int i = 0; i < 20; ++i) {
        if (next() == '!' && !at("!=")) {
          ++at_;
          if (next() == '!') return std::nullopt;
          of = function_of("factorial", one(std::move(of)));
        } else if (accept_command("degree")) {
          of = function_of("degree", one(std::move(of)));
        } else if (next() == '\'' && of.kind == FormulaKind::kSymbol) {
          ++at_;
          of.text += '\'';
        } else if (next() == '^') {
          ++at_;
          if (const std::string_view ending = ordinal(); !ending.empty()) continue;
          if (accept("'") || accept("{'}")) {
            of.text += '\'';
            continue;
          }
          MaybeFormula exponent = argument();
          if (!exponent) return std::nullopt;
          of = binary(FormulaKind::kPower, std::move(of), std::move(*exponent));
        } else {
          break;
        }
      }
      return answer_of(std::move(of));
    });
  }

  static std::vector<Formula> one(Formula of) {
    std::vector<Formula> args;
    args.push_back(std::move(of));
    return args;
  }

  /// "th" behind a number, in a power or not.
  std::string_view ordinal() {
    for (const std::string_view ending :
         {"{ th }", "{ st }", "{ nd }", "{ rd }", "{th}", " th ", "th", "st", "nd", "rd"}) {
      const bool is_here = std::string_view(text_).substr(at_).starts_with(ending);
      const std::size_t end = at_ + ending.size();
      if (is_here && (end >= text_.size() || !is_letter(text_[end]))) {
        at_ = end;
        return ending;
      }
    }
    return {};
  }

  /// The argument of a command or power: a group, or one character, command or number.
  MaybeFormula argument() {
    return deeper([this] { return any_argument(); });
  }

  MaybeFormula any_argument() {
    skip();
    if (at_ >= text_.size()) return std::nullopt;
    if (next() == '{') return group();
    if (next() == '-' || next() == '+') {
      const bool is_negative = next() == '-';
      ++at_;
      MaybeFormula of = argument();
      if (of && is_negative) return unary(FormulaKind::kNegative, std::move(*of));
      return of;
    }
    if (next() == '(') {
      Maybe inside = primary();
      if (!inside || !is_formula(*inside)) return std::nullopt;
      return std::move(inside->formula);
    }
    if (is_digit(next())) {
      const std::size_t begin = at_;
      while (at_ < text_.size() && is_digit(text_[at_])) ++at_;
      return number_formula(text_.substr(begin, at_ - begin));
    }
    if (is_letter(next())) return symbol(1);
    Maybe of = primary();
    if (!of || !is_formula(*of)) return std::nullopt;
    return std::move(of->formula);
  }

  /// The argument of \frac: one digit, where there is no group.
  MaybeFormula short_argument() {
    if (is_digit(next())) return number_formula(std::string(1, text_[at_++]));
    return argument();
  }

  /// {...} around a scalar.
  MaybeFormula group() {
    return deeper([&]() -> MaybeFormula {
      if (!accept("{")) return std::nullopt;
      MaybeFormula of = scalar();
      if (of && !over_or_choose(*of)) return std::nullopt;
      if (!of || !accept("}")) return std::nullopt;
      return of;
    });
  }

  /// "{a \\over b}" and "{n \\choose k}", of which `top` was read; false: what follows is no scalar.
  bool over_or_choose(Formula& top) {
    const std::string name(command());
    if (name != "over" && name != "choose") return true;
    accept_command(name);
    MaybeFormula below = scalar();
    if (!below) return false;
    if (name == "over") {
      top = quotient_of(std::move(top), std::move(*below));
    } else {
      std::vector<Formula> args = one(std::move(top));
      args.push_back(std::move(*below));
      top = function_of("binom", std::move(args));
    }
    return true;
  }

  // --- primaries ------------------------------------------------------------------------------

  Maybe primary() {
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

  Maybe letters() {
    const std::string_view all = word();
    if (is_one_of(kPlainFunctions, all)) {
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
                           inside->parts.size() == 2 && is_formula(inside->parts[0]) &&
                           is_formula(inside->parts[1]);
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

  /// Whether brackets with a comma in them follow the letter here.
  bool tuple_follows() const {
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

  static Maybe maybe_answer(MaybeFormula formula) {
    if (!formula) return std::nullopt;
    return answer_of(std::move(*formula));
  }

  /// One letter with its index: x, x_1, x_{n+1}.
  MaybeFormula symbol(std::size_t length) {
    std::string name = text_.substr(at_, length);
    at_ += length;
    return indexed(std::move(name));
  }

  MaybeFormula indexed(std::string name) {
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

  /// What stands behind "_": a group, a run of digits, a letter or a command.
  std::optional<std::string> index_text() {
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

  // --- numbers --------------------------------------------------------------------------------

  std::size_t digits_at(std::size_t i) const {
    std::size_t end = i;
    while (end < text_.size() && is_digit(text_[end])) ++end;
    return end - i;
  }

  Maybe number() {
    skip();
    std::string digits;
    std::size_t count = digits_at(at_);
    digits += text_.substr(at_, count);
    at_ += count;
    bool is_whole = true;
    if (!keeps_commas_ && count > 0 && count <= 3) {
      while (at_ < text_.size() && text_[at_] == ',' && digits_at(at_ + 1) == 3) {
        digits += text_.substr(at_ + 1, 3);
        at_ += 4;
      }
      // "10 000" but not "3 125/1000"
      while (at_ + 4 <= text_.size() && text_[at_] == ' ' && digits_at(at_ + 1) == 3 &&
             !(at_ + 4 < text_.size() && text_[at_ + 4] == '/')) {
        digits += text_.substr(at_ + 1, 3);
        at_ += 4;
      }
    }
    if (at_ < text_.size() && text_[at_] == '.' && !(count == 0 && digits_at(at_ + 1) == 0)) {
      const std::size_t decimals = digits_at(at_ + 1);
      const bool is_sentence = decimals == 0 && at_ + 1 < text_.size() && is_letter(text_[at_ + 1]);
      if (!is_sentence) {
        is_whole = decimals == 0;
        digits += "." + text_.substr(at_ + 1, decimals);
        at_ += 1 + decimals;
        if (digits.front() == '.') digits.insert(digits.begin(), '0');
        if (digits.back() == '.') digits.pop_back();
        if (is_repeating()) return repeating(digits);
        if (command() == "ldots") {
          if (MaybeFormula endless = going_on(digits)) return answer_of(std::move(*endless));
        }
      }
    }
    if (digits.empty()) return std::nullopt;
    if (Maybe based = is_whole ? in_base(digits) : std::nullopt) return based;
    if (exponent_follows()) return scientific(std::move(digits));
    if (is_whole) {
      if (MaybeFormula mixed = mixed_number(digits)) return answer_of(std::move(*mixed));
      ordinal();
    }
    return answer_of(number_formula(std::move(digits)));
  }

  bool is_repeating() {
    const std::string_view name = command();
    return name == "overline" || name == "bar" || name == "dot";
  }

  /// "0.1\overline{6}", "0.\dot{1}4\dot{2}": digits, then the period.
  Maybe repeating(const std::string& before) {
    std::string period;
    const bool has_dots = command() == "dot";
    for (int i = 0; i < 2; ++i) {
      if (!is_repeating()) break;
      at_ += command().size() + 1;
      skip();
      const bool is_group = accept("{");
      const std::size_t count =
          is_group ? digits_at(at_) : std::min<std::size_t>(digits_at(at_), 1);
      if (count == 0) return std::nullopt;
      period += text_.substr(at_, count);
      at_ += count;
      if (is_group && !accept("}")) return std::nullopt;
      if (!has_dots) break;
      const std::size_t between = digits_at(at_);
      period += text_.substr(at_, between);
      at_ += between;
    }
    if (period.size() > 500) return std::nullopt;
    const std::size_t point = before.find('.');
    const std::size_t decimals = point == std::string::npos ? 0 : before.size() - point - 1;
    Formula tail =
        quotient_of(number_formula(period),
                    number_formula(std::string(period.size(), '9') + std::string(decimals, '0')));
    return answer_of(binary(FormulaKind::kSum, number_formula(before), std::move(tail)));
  }

  /// "0.333..." and "0.1818...": decimals that end with a block at least twice, one digit three times.
  MaybeFormula going_on(const std::string& digits) {
    const std::size_t point = digits.find('.');
    const std::string decimals = point == std::string::npos ? "" : digits.substr(point + 1);
    for (std::size_t period = 1; 2 * period <= decimals.size(); ++period) {
      const std::string_view all = decimals;
      const std::string_view block = all.substr(all.size() - period);
      std::size_t count = 0;
      while ((count + 1) * period <= all.size() &&
             all.substr(all.size() - (count + 1) * period, period) == block) {
        ++count;
      }
      if (count < (period == 1 ? 3U : 2U)) continue;
      accept_command("ldots");
      const std::size_t kept = decimals.size() - period;
      return binary(FormulaKind::kSum,
                    number_formula(digits.substr(0, point) +
                                   (kept > 0 ? "." + decimals.substr(0, kept) : "")),
                    quotient_of(number_formula(std::string(block)),
                                number_formula(std::string(period, '9') + std::string(kept, '0'))));
    }
    return std::nullopt;
  }

  /// 1010_2
  Maybe in_base(const std::string& digits) {
    if (at_ >= text_.size() || text_[at_] != '_') return std::nullopt;
    const std::size_t here = at_;
    ++at_;
    const std::optional<std::string> index = index_text();
    if (index) {
      Answer based;
      based.kind = AnswerKind::kBased;
      based.text = digits;
      const auto named = number_in_words(*index);
      if (!index->empty() && std::ranges::all_of(*index, is_digit)) {
        based.formula = number_formula(*index);
        return based;
      }
      if (named && named->second == index->size()) {
        based.formula = named->first;
        return based;
      }
    }
    at_ = here;
    return std::nullopt;
  }

  bool exponent_follows() const {
    if (at_ >= text_.size() || (text_[at_] != 'e' && text_[at_] != 'E')) return false;
    std::size_t i = at_ + 1;
    if (i < text_.size() && (text_[i] == '-' || text_[i] == '+')) ++i;
    return digits_at(i) > 0 && digits_at(i) <= 4;
  }

  Maybe scientific(std::string digits) {
    ++at_;
    const bool is_negative = text_[at_] == '-';
    if (text_[at_] == '-' || text_[at_] == '+') ++at_;
    const std::size_t count = digits_at(at_);
    Formula exponent = number_formula(text_.substr(at_, count));
    at_ += count;
    if (is_negative) exponent = unary(FormulaKind::kNegative, std::move(exponent));
    return answer_of(
        binary(FormulaKind::kProduct, number_formula(std::move(digits)),
               binary(FormulaKind::kPower, number_formula("10"), std::move(exponent))));
  }

  /// "3\frac{1}{2}" and "3 1/2": a whole number, then a proper fraction of whole numbers.
  MaybeFormula mixed_number(const std::string& whole) {
    const std::size_t here = at_;
    const bool is_spaced = at_ < text_.size() && text_[at_] == ' ';
    std::string top, bottom;
    if (accept_command("frac")) {
      const auto part = [this]() -> std::string {
        const bool is_group = accept("{");
        skip();
        const std::size_t count =
            is_group ? digits_at(at_) : std::min<std::size_t>(digits_at(at_), 1);
        std::string digits = text_.substr(at_, count);
        at_ += count;
        if (is_group && !accept("}")) return "";
        return digits;
      };
      top = part();
      if (!top.empty()) bottom = part();
    } else if (is_spaced) {
      skip();
      const std::size_t count = digits_at(at_);
      top = text_.substr(at_, count);
      at_ += count;
      if (!top.empty() && accept("/")) {
        skip();
        const std::size_t below = digits_at(at_);
        bottom = text_.substr(at_, below);
        at_ += below;
      }
    }
    const bool is_proper =
        !top.empty() && !bottom.empty() &&
        (top.size() < bottom.size() || (top.size() == bottom.size() && top < bottom));
    if (!is_proper) {
      at_ = here;
      return std::nullopt;
    }
    return binary(FormulaKind::kSum, number_formula(whole),
                  quotient_of(number_formula(top), number_formula(bottom)));
  }

  // --- brackets -------------------------------------------------------------------------------

  /// (...), [...], half-open and French ]...[
  Maybe bracketed() {
    const std::string open(1, text_[at_]);
    ++at_;
    const int bars = std::exchange(num_bars_, 0);
    const bool is_french = open == "]";
    const bool builder = std::exchange(in_builder_, false);
    Maybe inside = list(is_french ? "[]" : ")][");
    in_builder_ = builder;
    num_bars_ = bars;
    if (!inside) return std::nullopt;
    skip();
    if (at_ >= text_.size()) return std::nullopt;
    const char close = text_[at_];
    if (close != ')' && close != ']' && close != '[') return std::nullopt;
    ++at_;
    const bool is_group = (open == "(" && close == ')') || (open == "[" && close == ']');
    if (inside->kind != AnswerKind::kList) {
      if (is_group) return inside;
      return std::nullopt;
    }
    if (inside->parts.empty()) return std::nullopt;
    Answer tuple;
    tuple.kind = AnswerKind::kTuple;
    tuple.open = is_french ? "(" : open;
    tuple.close = close == '[' ? ")" : std::string(1, close);
    tuple.parts = std::move(inside->parts);
    return tuple;
  }

  /// {x+1}, {1, 2}: a group, or a set without its backslashes.
  Maybe braced() {
    ++at_;
    Maybe inside = list("}");
    if (inside && is_formula(*inside) && !over_or_choose(inside->formula)) return std::nullopt;
    if (!inside || !accept("}")) return std::nullopt;
    if (inside->kind != AnswerKind::kList) return inside;
    if (inside->parts.empty()) return std::nullopt;
    inside->kind = AnswerKind::kSet;
    return inside;
  }

  /// \{1, 2\}, \{x \mid x > 2\}
  Maybe set() {
    at_ += 2;
    Answer out;
    const std::size_t begin = at_;
    const int depth = depth_;
    const bool outer = std::exchange(in_builder_, true);
    ++num_sets_;
    Maybe inside = list("}|:");
    --num_sets_;
    if (inside && (accept("|") || accept_command("mid") || accept(":"))) {
      in_builder_ = false;
      Maybe condition = list("}");
      in_builder_ = outer;
      if (!condition || !accept("\\}")) return std::nullopt;
      out.kind = AnswerKind::kBuilder;
      out.parts.push_back(std::move(*inside));
      out.parts.push_back(std::move(*condition));
      return out;
    }
    // Bars and colons belong to the elements; looked at again for the outermost set alone.
    if ((!inside || !at("\\}")) && num_sets_ == 0) {
      in_builder_ = false;
      at_ = begin;
      depth_ = depth;
      ++num_sets_;
      inside = list("}");
      --num_sets_;
    }
    in_builder_ = outer;
    if (!inside || !accept("\\}")) return std::nullopt;
    if (inside->kind == AnswerKind::kList) {
      inside->kind = AnswerKind::kSet;
      return inside;
    }
    out.kind = AnswerKind::kSet;
    out.parts.push_back(std::move(*inside));
    return out;
  }

  Maybe bars() {
    ++at_;
    ++num_bars_;
    MaybeFormula inside = scalar();
    --num_bars_;
    if (!inside || !accept("|")) return std::nullopt;
    return answer_of(function_of("abs", one(std::move(*inside))));
  }

  // --- commands -------------------------------------------------------------------------------

  Maybe commanded() {
    if (at("\\{")) return set();
    const std::string name(command());
    if (name.empty()) return std::nullopt;
    if (name == "begin") return matrix();
    const std::size_t here = at_;
    at_ += name.size() + 1;
    if (name == "frac") {
      MaybeFormula top = short_argument();
      MaybeFormula bottom = top ? short_argument() : std::nullopt;
      if (!bottom) return std::nullopt;
      return answer_of(quotient_of(std::move(*top), std::move(*bottom)));
    }
    if (name == "binom") {
      MaybeFormula top = short_argument();
      MaybeFormula bottom = top ? short_argument() : std::nullopt;
      if (!bottom) return std::nullopt;
      std::vector<Formula> args = one(std::move(*top));
      args.push_back(std::move(*bottom));
      return answer_of(function_of("binom", std::move(args)));
    }
    if (name == "pi") return answer_of({FormulaKind::kPi, ""});
    if (name == "infty") return answer_of({FormulaKind::kInfinity, ""});
    if (name == "emptyset") {
      Answer empty;
      empty.kind = AnswerKind::kSet;
      return empty;
    }
    if (name == "ldots") {
      Answer dots;
      dots.kind = AnswerKind::kEllipsis;
      return dots;
    }
    for (const char* numbers : {"reals", "integers", "naturals", "rationals", "complexes"}) {
      if (name != numbers) continue;
      Answer set;
      set.kind = AnswerKind::kNumbers;
      set.text = "\\" + name;
      if (next() == '^' || next() == '_') {
        ++at_;
        const std::optional<std::string> kind = index_text();
        if (!kind) {
          if (!accept("+") && !accept("*")) return std::nullopt;
          set.text += "+";
        } else {
          set.text += *kind;
        }
      }
      return set;
    }
    if (name == "langle") {
      Maybe inside = list("\\");
      if (!inside || !accept_command("rangle") || inside->kind != AnswerKind::kList)
        return std::nullopt;
      inside->kind = AnswerKind::kTuple;
      inside->open = "(";
      inside->close = ")";
      return inside;
    }
    if (name == "lfloor" || name == "lceil") {
      MaybeFormula inside = scalar();
      if (!inside || !accept_command(name == "lfloor" ? "rfloor" : "rceil")) return std::nullopt;
      return answer_of(function_of(name == "lfloor" ? "floor" : "ceil", one(std::move(*inside))));
    }
    if (name == "sum" || name == "prod") return maybe_answer(series(name));
    if (name == "angle" || name == "triangle" || name == "odot") {
      // The name of a figure.
      accept("{");
      const std::string figure(word());
      if (figure.empty() || figure.size() > 5) return std::nullopt;
      at_ += figure.size();
      accept("}");
      return answer_of(symbol_formula("\\" + name + figure));
    }
    if (name == "overline" || name == "vec" || name == "hat" || name == "bar" ||
        name == "overrightarrow" || name == "widehat" || name == "tilde" || name == "dot") {
      const std::optional<std::string> inside = index_text_after_space();
      if (!inside) return std::nullopt;
      return maybe_answer(indexed("\\" + name + "{" + *inside + "}"));
    }
    if (is_one_of(kConstants, name)) return maybe_answer(indexed("\\" + name));
    if (is_one_of(kPlainFunctions, name)) return maybe_answer(function(name));
    at_ = here;
    return std::nullopt;
  }

  std::optional<std::string> index_text_after_space() {
    skip();
    return index_text();
  }

  /// \sum_{k=1}^{n} body
  MaybeFormula series(const std::string& name) {
    if (!accept("_") || !accept("{")) return std::nullopt;
    const std::string_view variable = word();
    if (variable.size() != 1) return std::nullopt;
    Formula index = symbol_formula(std::string(variable));
    ++at_;
    if (!accept("=")) return std::nullopt;
    MaybeFormula from = scalar();
    if (!from || !accept("}") || !accept("^")) return std::nullopt;
    MaybeFormula to = argument();
    if (!to) return std::nullopt;
    Maybe body = product();
    if (!body || !is_formula(*body)) return std::nullopt;
    Formula out{FormulaKind::kSeries, name};
    // The variable may be named like a constant.
    if (index.text == "i") {
      body->formula = with_constant_as_symbol(std::move(body->formula));
    }
    out.args.push_back(std::move(index));
    out.args.push_back(std::move(*from));
    out.args.push_back(std::move(*to));
    out.args.push_back(std::move(body->formula));
    return out;
  }

  static Formula with_constant_as_symbol(Formula of) {
    if (of.kind == FormulaKind::kI) return symbol_formula("i");
    for (Formula& arg : of.args) arg = with_constant_as_symbol(std::move(arg));
    return of;
  }

  /// A function, its power, and its argument: \sin^2 x, \log_2 8, \sqrt[3]{2}, \gcd(8, 12).
  MaybeFormula function(std::string name) {
    if (name == "sqrt") return square_root();
    if (name == "lg") name = "log";
    if (name == "asin" || name == "acos" || name == "atan") name = "arc" + name.substr(1);
    MaybeFormula base;
    if (name == "log" && next() == '_') {
      ++at_;
      base = argument();
      if (!base) return std::nullopt;
    }
    MaybeFormula exponent;
    if (next() == '^') {
      ++at_;
      exponent = argument();
      if (!exponent) return std::nullopt;
    }
    std::vector<Formula> args;
    const bool has_brackets = next() == '(';
    if (has_brackets || (name == "binom" && next() == '{')) {
      Maybe inside = has_brackets ? bracketed() : braced();
      if (!inside) return std::nullopt;
      if (inside->kind == AnswerKind::kTuple) {
        for (Answer& part : inside->parts) {
          if (!is_formula(part)) return std::nullopt;
          args.push_back(std::move(part.formula));
        }
      } else {
        if (inside->kind != AnswerKind::kFormula) return std::nullopt;
        if (inside->unit && !inside->unit->is_degree) return std::nullopt;
        Formula of = std::move(inside->formula);
        if (inside->unit) of = function_of("degree", one(std::move(of)));
        args = one(std::move(of));
      }
    } else {
      MaybeFormula of = function_argument();
      if (!of) return std::nullopt;
      args = one(std::move(*of));
    }
    if (base) args.push_back(std::move(*base));
    return applied(std::move(name), std::move(args), std::move(exponent));
  }

  MaybeFormula applied(std::string name, std::vector<Formula> args, MaybeFormula exponent) {
    const std::size_t count = args.size();
    const bool takes_many = name == "gcd" || name == "lcm" || name == "max" || name == "min";
    const std::size_t wanted = name == "binom" ? 2 : 1;
    if (takes_many ? count < 2 : count != wanted && !(name == "log" && count == 2))
      return std::nullopt;
    if (exponent && exponent->kind == FormulaKind::kNegative &&
        exponent->args[0].kind == FormulaKind::kNumber && exponent->args[0].text == "1" &&
        name.size() == 3 && name != "log" && name != "exp") {
      name = "arc" + name;
      exponent.reset();
    }
    Formula of = name == "exp"
                     ? binary(FormulaKind::kPower, Formula{FormulaKind::kE, ""}, std::move(args[0]))
                     : function_of(std::move(name), std::move(args));
    if (exponent) of = binary(FormulaKind::kPower, std::move(of), std::move(*exponent));
    return of;
  }

  /// Factors up to the next sign, function or bracket: the 2x of \sin 2x + 1 and of \sin 2x\cos x.
  MaybeFormula function_argument() {
    Formula all{FormulaKind::kProduct, ""};
    bool is_negative = accept("-");
    while (true) {
      Maybe factor = power();
      if (!factor || !is_formula(*factor)) return std::nullopt;
      all.args.push_back(std::move(factor->formula));
      if (all.args.size() > 50) return std::nullopt;
      if (at("/") && all.args.size() == 1 && !is_letter(last_character())) {
        accept("/");
        Maybe below = power();
        if (!below || !is_formula(*below)) return std::nullopt;
        all.args.push_back(unary(FormulaKind::kInverse, std::move(below->formula)));
        break;
      }
      if (next() == '(' || next() == '|' || next() == '{' || !starts_factor()) break;
      if (is_one_of(kPlainFunctions, next() == '\\' ? command() : word()) && command() != "sqrt") {
        break;
      }
    }
    Formula of = all.args.size() == 1 ? std::move(all.args[0]) : std::move(all);
    return is_negative ? unary(FormulaKind::kNegative, std::move(of)) : std::move(of);
  }

  MaybeFormula square_root() {
    MaybeFormula index = number_formula("2");
    if (next() == '[') {
      ++at_;
      index = scalar();
      if (!index || !accept("]")) return std::nullopt;
    }
    MaybeFormula of = short_argument();
    if (!of) return std::nullopt;
    return binary(FormulaKind::kRoot, std::move(*of), std::move(*index));
  }

  // --- matrices -------------------------------------------------------------------------------

  Maybe matrix() {
    std::string name;
    if (!environment("begin", name)) return std::nullopt;
    const bool is_determinant = name == "vmatrix";
    if (name != "pmatrix" && name != "bmatrix" && name != "matrix" && name != "array" &&
        name != "Bmatrix" && name != "smallmatrix" && !is_determinant) {
      return std::nullopt;
    }
    Answer out;
    out.kind = AnswerKind::kMatrix;
    std::size_t in_row = 0;
    while (true) {
      std::string end_name;
      if (command() == "end") {
        if (!environment("end", end_name) || end_name != name) return std::nullopt;
        break;
      }
      MaybeFormula cell = scalar();
      if (!cell || out.parts.size() == kMostParts) return std::nullopt;
      out.parts.push_back(answer_of(std::move(*cell)));
      ++in_row;
      if (accept("&")) continue;
      const bool ends_row = accept("\\\\");
      if (!ends_row && command() != "end") return std::nullopt;
      if (out.columns == 0) out.columns = in_row;
      if (in_row != out.columns) return std::nullopt;
      in_row = 0;
    }
    if (out.parts.empty() || out.parts.size() % out.columns != 0) return std::nullopt;
    if (!is_determinant) return out;
    std::vector<Formula> cells;
    for (Answer& part : out.parts) cells.push_back(std::move(part.formula));
    return maybe_answer(determinant(cells, out.columns));
  }

  /// "\begin {pmatrix}"
  bool environment(std::string_view which, std::string& name) {
    if (!accept_command(which) || !accept("{")) return false;
    name = word();
    at_ += name.size();
    return accept("}");
  }

  const PlainLatex& plain_;
  const std::string& text_;
  const bool keeps_commas_;
  std::size_t at_ = 0;
  int depth_ = 0;
  int num_bars_ = 0;
  int num_operations_ = 0;
  int num_sets_ = 0;
  bool in_builder_ = false;
};

/// "2k\pi (k \in \mathbb{Z})" with a comma instead of the brackets, "f(x) = x for all x" without what
/// is said of x.
PlainLatex without_clause(PlainLatex plain) {
  std::string& text = plain.text;
  const auto cut = [&plain](std::size_t begin) {
    plain.text.erase(begin);
    plain.is_text.resize(begin);
    while (plain.text.ends_with(' ') || plain.text.ends_with(',')) {
      plain.text.pop_back();
      plain.is_text.pop_back();
    }
  };
  for (const std::string_view clause : {" for all ", " for every ", " for any ", "\\forall "}) {
    const std::size_t begin = text.find(clause);
    if (begin != std::string::npos && begin > 0) cut(begin);
  }
  const std::size_t open = text.rfind('(');
  if (text.ends_with(')') && open != std::string::npos && open > 1 &&
      text.find("\\in ", open) != std::string::npos && text.find(',', open) == std::string::npos) {
    text[open] = ',';
    text.pop_back();
    plain.is_text.pop_back();
  }
  return plain;
}

/// "16 (approximately)" without what stands in the brackets: words only, the first of four letters.
PlainLatex without_remark(PlainLatex plain) {
  const std::string& text = plain.text;
  if (!text.ends_with(')')) return plain;
  const std::size_t open = text.rfind('(');
  if (open == std::string::npos || open < 2) return plain;
  std::size_t longest = 0, run = 0;
  for (std::size_t i = open + 1; i + 1 < text.size(); ++i) {
    if (!is_letter(text[i]) && text[i] != ' ') return plain;
    run = is_letter(text[i]) ? run + 1 : 0;
    longest = std::max(longest, run);
  }
  if (longest < 4 || text[open - 1] == '\\') return plain;
  plain.text.erase(open);
  plain.is_text.resize(open);
  while (plain.text.ends_with(' ')) {
    plain.text.pop_back();
    plain.is_text.pop_back();
  }
  return plain;
}

Answer text_answer(const PlainLatex& plain) {
  Answer text;
  text.text = text_form(plain);
  for (const char* all : {"allrealnumbers", "allreals", "anyrealnumber", "allrealnumber"}) {
    if (text.text != all) continue;
    text.kind = AnswerKind::kNumbers;
    text.text = "\\reals";
  }
  for (const char* none : {"nosolution", "norealsolution", "norealsolutions", "nosolutions",
                           "emptyset", "nosolutionsexist", "nosolutionexists"}) {
    if (text.text == none) text.kind = AnswerKind::kSet;
  }
  if (text.kind == AnswerKind::kSet) text.text.clear();
  return text;
}

/// The text between commas, "and" and "or" outside of brackets: what is left of a list whose parts
/// are words.
std::vector<PlainLatex> pieces_of(const PlainLatex& plain) {
  std::vector<PlainLatex> pieces;
  const std::string& text = plain.text;
  std::size_t begin = 0;
  int open = 0;
  const auto cut = [&](std::size_t end, std::size_t next) {
    PlainLatex piece;
    piece.text = text.substr(begin, end - begin);
    piece.is_text.assign(plain.is_text.begin() + static_cast<std::ptrdiff_t>(begin),
                         plain.is_text.begin() + static_cast<std::ptrdiff_t>(end));
    begin = next;
    if (!stripped(piece.text).empty()) pieces.push_back(std::move(piece));
  };
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '(' || c == '[' || c == '{') ++open;
    if (c == ')' || c == ']' || c == '}') --open;
    if (open != 0) continue;
    if (c == ',' || c == ';') {
      cut(i, i + 1);
      continue;
    }
    for (const std::string_view word : {" and ", " or "}) {
      if (!std::string_view(text).substr(i).starts_with(word)) continue;
      cut(i, i + word.size());
      i = begin - 2;  // the blank may begin the next one
      break;
    }
  }
  cut(text.size(), text.size());
  return pieces.size() <= kMostParts ? pieces : std::vector<PlainLatex>{};
}

}  // namespace

Answer read_answer(const PlainLatex& plain, bool keeps_commas) {
  if (plain.text.size() <= kMostCharacters) {
    const PlainLatex shorter = without_clause(without_remark(plain));
    if (auto answer = AnswerParser(shorter, keeps_commas).run()) return std::move(*answer);
    const std::vector<PlainLatex> pieces = pieces_of(shorter);
    if (pieces.size() > 1) {
      Answer list;
      list.kind = AnswerKind::kList;
      for (const PlainLatex& piece : pieces) {
        auto part = AnswerParser(piece, keeps_commas).run();
        list.parts.push_back(part ? std::move(*part) : text_answer(piece));
      }
      list.signs.assign(list.parts.size() - 1, ",");
      return list;
    }
  }
  return text_answer(plain);
}

}  // namespace slime::reward
