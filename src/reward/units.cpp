#include "reward/units.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "reward/python_text.h"

namespace slime::reward {
namespace {

struct KnownUnit {
  std::map<std::string, int> powers;
  std::string factor = "1";  // a decimal
  std::string divisor = "1";
};

using Powers = std::map<std::string, int>;

const std::map<std::string_view, KnownUnit>& known_units() {
  static const std::map<std::string_view, KnownUnit> kUnits = [] {
    std::map<std::string_view, KnownUnit> units;
    const auto add = [&units](std::initializer_list<std::string_view> names, const Powers& powers,
                              const char* factor, const char* divisor = "1") {
      for (const std::string_view name : names) units[name] = {powers, factor, divisor};
    };
    const Powers length{{"m", 1}}, mass{{"g", 1}}, time{{"s", 1}};
    add({"m", "meter", "metre"}, length, "1");
    add({"km", "kilometer", "kilometre"}, length, "1000");
    add({"cm", "centimeter", "centimetre"}, length, "1", "100");
    add({"mm", "millimeter", "millimetre"}, length, "1", "1000");
    add({"dm", "decimeter", "decimetre"}, length, "1", "10");
    add({"nm", "nanometer", "nanometre"}, length, "1", "1000000000");
    add({"inch", "inches", "in"}, length, "254", "10000");
    add({"foot", "feet", "ft"}, length, "3048", "10000");
    add({"yard", "yd"}, length, "9144", "10000");
    add({"mile", "mi"}, length, "1609344", "1000");
    add({"g", "gram", "gm"}, mass, "1");
    add({"kg", "kilogram"}, mass, "1000");
    add({"mg", "milligram"}, mass, "1", "1000");
    add({"ton", "tonne"}, {{"ton", 1}}, "1");
    add({"lb", "pound", "lbs"}, {{"pound", 1}}, "1");
    add({"oz", "ounce"}, {{"pound", 1}}, "1", "16");
    add({"s", "sec", "second"}, time, "1");
    add({"ms", "millisecond"}, time, "1", "1000");
    add({"min", "minute"}, time, "60");
    add({"h", "hr", "hour"}, time, "3600");
    add({"day"}, time, "86400");
    add({"week"}, time, "604800");
    add({"month"}, {{"month", 1}}, "1");
    add({"year", "yr"}, {{"month", 1}}, "12");
    add({"decade"}, {{"month", 1}}, "120");
    add({"century", "centuries"}, {{"month", 1}}, "1200");
    add({"l", "liter", "litre"}, {{"m", 3}}, "1", "1000");
    add({"ml", "milliliter", "millilitre", "cc"}, {{"m", 3}}, "1", "1000000");
    add({"gallon", "gal"}, {{"gallon", 1}}, "1");
    add({"quart", "qt"}, {{"gallon", 1}}, "1", "4");
    add({"pint", "pt"}, {{"gallon", 1}}, "1", "8");
    add({"hectare", "ha"}, {{"m", 2}}, "10000");
    add({"acre"}, {{"acre", 1}}, "1");
    const Powers force{{"g", 1}, {"m", 1}, {"s", -2}};
    add({"newton"}, force, "1000");
    const Powers energy{{"g", 1}, {"m", 2}, {"s", -2}};
    add({"joule"}, energy, "1000");
    add({"kj", "kilojoule"}, energy, "1000000");
    add({"cal", "calorie"}, {{"calorie", 1}}, "1");
    add({"ev"}, {{"ev", 1}}, "1");
    add({"watt"}, {{"g", 1}, {"m", 2}, {"s", -3}}, "1000");
    add({"kw", "kilowatt"}, {{"g", 1}, {"m", 2}, {"s", -3}}, "1000000");
    add({"hz", "hertz"}, {{"s", -1}}, "1");
    add({"mph"}, {{"m", 1}, {"s", -1}}, "1609344", "3600000");
    add({"kmh", "kph"}, {{"m", 1}, {"s", -1}}, "1000", "3600");
    add({"pascal"}, {{"g", 1}, {"m", -1}, {"s", -2}}, "1000");
    add({"volt"}, {{"volt", 1}}, "1");
    add({"amp", "ampere"}, {{"ampere", 1}}, "1");
    add({"ohm"}, {{"ohm", 1}}, "1");
    add({"mol", "mole"}, {{"mole", 1}}, "1");
    add({"kelvin"}, {{"kelvin", 1}}, "1");
    add({"dollar", "usd", "buck"}, {{"dollar", 1}}, "1");
    add({"cent", "penny", "pennies"}, {{"dollar", 1}}, "1", "100");
    add({"euro", "eur"}, {{"euro", 1}}, "1");
    add({"yen"}, {{"yen", 1}}, "1");
    add({"yuan", "rmb"}, {{"yuan", 1}}, "1");
    add({"rupee"}, {{"rupee", 1}}, "1");
    add({"radian", "rad"}, {}, "1");
    // Of no particular size.
    add({"unit", "units", "u"}, {}, "1");
    return units;
  }();
  return kUnits;
}

/// Capital letters that are units; a small one means something else.
const std::map<std::string_view, std::string_view>& capital_units() {
  static const std::map<std::string_view, std::string_view> kUnits{
      {"N", "newton"}, {"J", "joule"},  {"W", "watt"},     {"Pa", "pascal"},
      {"V", "volt"},   {"A", "ampere"}, {"K", "kelvin"},   {"L", "l"},
      {"Hz", "hz"},    {"eV", "ev"},    {"kJ", "kj"},      {"kW", "kw"},
      {"mL", "ml"},    {"H", "h"},      {"USD", "dollar"}, {"Euro", "euro"}};
  return kUnits;
}

std::string singular(std::string word) {
  for (const auto& [many, one] : std::initializer_list<std::pair<std::string_view, const char*>>{
           {"people", "person"}, {"children", "child"}, {"men", "man"}, {"women", "woman"}}) {
    if (word == many) return one;
  }
  if (word.size() > 4 && word.ends_with("ies")) return word.substr(0, word.size() - 3) + "y";
  for (const std::string_view ending : {"ches", "shes", "sses", "xes"}) {
    if (word.size() > 4 && word.ends_with(ending)) return word.substr(0, word.size() - 2);
  }
  if (word.size() > 2 && word.ends_with('s') && !word.ends_with("ss")) word.pop_back();
  return word;
}

const KnownUnit* find_unit(const std::string& word) {
  if (const auto capital = capital_units().find(word); capital != capital_units().end())
    return &known_units().at(capital->second);
  const std::string lower = to_lower(word);
  for (const std::string& each : {lower, singular(lower)}) {
    if (const auto known = known_units().find(each); known != known_units().end())
      return &known->second;
  }
  return nullptr;
}

/// Decimal products, exact: only ASCII digits, at most a few dozen.
std::string times(const std::string& a, const std::string& b) {
  std::string digits(a.size() + b.size(), '0');
  for (std::size_t i = a.size(); i-- > 0;) {
    int carry = 0;
    for (std::size_t j = b.size(); j-- > 0;) {
      const int sum = (a[i] - '0') * (b[j] - '0') + (digits[i + j + 1] - '0') + carry;
      digits[i + j + 1] = static_cast<char>('0' + sum % 10);
      carry = sum / 10;
    }
    digits[i] = static_cast<char>(digits[i] - '0' + carry + '0');
  }
  digits.erase(0, std::min(digits.find_first_not_of('0'), digits.size() - 1));
  return digits;
}

void multiply(Unit& unit, const KnownUnit& by, int power) {
  for (const auto& [base, exponent] : by.powers) {
    unit.powers[base] += exponent * power;
    if (unit.powers[base] == 0) unit.powers.erase(base);
  }
  for (int i = 0; i < std::abs(power); ++i) {
    unit.numerator = times(unit.numerator, power > 0 ? by.factor : by.divisor);
    unit.denominator = times(unit.denominator, power > 0 ? by.divisor : by.factor);
  }
}

constexpr int kMostPower = 4;
constexpr int kMostWords = 8;

/// What follows a unit: "^2", "^{-2}"; 1 without it.
int exponent_at(std::string_view text, std::size_t& at) {
  std::size_t i = at;
  while (i < text.size() && text[i] == ' ') ++i;
  if (i >= text.size() || text[i] != '^') return 1;
  ++i;
  while (i < text.size() && (text[i] == '{' || text[i] == ' ')) ++i;
  const bool is_negative = i < text.size() && text[i] == '-';
  if (is_negative) ++i;
  if (i >= text.size() || !is_digit(text[i])) return 1;
  const int power = text[i] - '0';
  ++i;
  while (i < text.size() && (text[i] == '}' || text[i] == ' ')) ++i;
  if (power < 1 || power > kMostPower) return 1;
  at = i;
  return is_negative ? -power : power;
}

}  // namespace

Unit currency(std::string_view name) {
  Unit unit;
  unit.powers[std::string(name)] = 1;
  return unit;
}

std::optional<std::string> multiplier(std::string_view word) {
  for (const auto& [name, factor] : std::initializer_list<std::pair<std::string_view, const char*>>{
           {"dozen", "12"},
           {"hundred", "100"},
           {"thousand", "1000"},
           {"million", "1000000"},
           {"billion", "1000000000"},
           {"trillion", "1000000000000"}}) {
    if (word == name) return factor;
  }
  return std::nullopt;
}

std::optional<Unit> read_unit(const PlainLatex& plain, std::size_t& at, std::size_t until,
                              bool may_count) {
  const std::string_view text = std::string_view(plain.text).substr(0, until);
  Unit unit;
  int sign = 1;        // -1 after "/" and "per"
  int next_power = 1;  // of "square" and "cubic"
  int num_words = 0;
  std::size_t i = at;
  while (true) {
    while (i < text.size() && (text[i] == ' ' || text[i] == '{' || text[i] == '}')) ++i;
    if (i >= text.size()) break;
    if (text[i] == '/' && num_words > 0 && sign == 1) {
      sign = -1;
      ++i;
      continue;
    }
    if (text[i] == '*' && num_words > 0) {
      ++i;
      continue;
    }
    if (!is_letter(text[i])) break;
    const std::size_t begin = i;
    while (i < text.size() && is_letter(text[i])) ++i;
    const std::string word(text.substr(begin, i - begin));
    const std::string lower = to_lower(word);
    if (lower == "and" || lower == "or" || lower == "is" || lower == "not" || lower == "than" ||
        lower == "if" || lower == "when" || lower == "but" || lower == "no" || lower == "to") {
      i = begin;
      break;
    }
    if (num_words == 0 && (lower == "a" || lower == "an")) return std::nullopt;
    if (++num_words > kMostWords) return std::nullopt;
    if (lower == "per" || lower == "an" || lower == "a") {
      if (lower == "per") sign = -1;
      continue;
    }
    if (lower == "square" || lower == "sq" || lower == "cubic" || lower == "cubed" ||
        lower == "squared") {
      next_power = lower.starts_with('s') ? 2 : 3;
      continue;
    }
    if (lower == "percent" || lower == "percentage") {
      unit.is_percent = true;
      continue;
    }
    if (lower == "degree" || lower == "degrees" || lower == "deg") {
      unit.is_degree = true;
      continue;
    }
    if (num_words == 1 && (lower == "radian" || lower == "radians" || lower == "rad")) {
      unit.is_radian = true;
      continue;
    }
    const bool is_one_letter = word.size() == 1;
    const KnownUnit* known =
        is_one_letter && !plain.is_text[begin] && !(begin > 0 && text[begin - 1] == ' ')
            ? nullptr
            : find_unit(word);
    if (known != nullptr && !unit.has_count) {
      const int power = exponent_at(text, i);
      multiply(unit, *known, sign * power * next_power);
      next_power = 1;
      continue;
    }
    if (!may_count || (is_one_letter && !plain.is_text[begin])) {
      if (num_words == 1) return std::nullopt;
      i = begin;
      break;
    }
    // A word that is counted: the first of them names it; "years old" are years.
    if (unit.powers.empty() && !unit.is_percent && !unit.is_degree) {
      unit.powers[singular(lower)] = sign;
      unit.has_count = true;
    }
  }
  if (num_words == 0) return std::nullopt;
  if (!unit.powers.empty()) unit.is_radian = false;
  at = i;
  return unit;
}

}  // namespace slime::reward
