#include "reward/formula_value.h"

#include <algorithm>
#include <cmath>

#include "reward/exact_number.h"

namespace slime::reward {
namespace {

using exact::bits_of;
using exact::exact_root;
using exact::floor_of;
using exact::Integer;
using exact::Rational;
using exact::rational_of;

constexpr std::size_t kMostBits = 65'536;
constexpr int kMostFactorial = 4'000;
constexpr int kMostBinomial = 2'000;
constexpr int kMostTerms = 500;
constexpr int kMostIndex = 64;
constexpr int kMostExponent = 64;  // of a number that is not rational

}  // namespace

template <int kBits>
std::optional<FormulaValue<kBits>> FormulaEvaluation<kBits>::exact(Rational number) {
  if (bits_of(number) > kMostBits) return std::nullopt;
  return Value{.exact = std::move(number), .closed = {}};
}

template <int kBits>
std::optional<FormulaValue<kBits>> FormulaEvaluation<kBits>::closed(std::optional<Number> number) {
  if (!number) return std::nullopt;
  return Value{.exact = std::nullopt, .closed = std::move(*number)};
}

/// Whether the budget has room for an operation on both; gcd counts like a few products.
template <int kBits>
bool FormulaEvaluation<kBits>::spends(const Rational& a, const Rational& b) {
  const auto limbs = [](const Rational& x) {
    return static_cast<int64_t>(bits_of(numerator(x)) + bits_of(denominator(x))) / 64 + 1;
  };
  budget_.limb_products -= 8 * limbs(a) * limbs(b) + 50;
  return budget_.limb_products > 0;
}

template <int kBits>
std::optional<FormulaValue<kBits>> FormulaEvaluation<kBits>::sum(Value a, Value b) {
  if (a.exact && b.exact) {
    if (!spends(*a.exact, *b.exact)) return std::nullopt;
    return exact(*a.exact + *b.exact);
  }
  return closed(Numbers::sum(a.as_closed(), b.as_closed(), 1));
}

template <int kBits>
std::optional<FormulaValue<kBits>> FormulaEvaluation<kBits>::product(Value a, Value b) {
  if (a.exact && b.exact) {
    if (!spends(*a.exact, *b.exact)) return std::nullopt;
    return exact(*a.exact * *b.exact);
  }
  return closed(Numbers::product(a.as_closed(), b.as_closed()));
}

template <int kBits>
std::optional<FormulaValue<kBits>> FormulaEvaluation<kBits>::negative(Value a) {
  if (a.exact) return exact(-*a.exact);
  a.closed.re = -a.closed.re;
  a.closed.im = -a.closed.im;
  return a;
}

template <int kBits>
std::optional<FormulaValue<kBits>> FormulaEvaluation<kBits>::inverse(Value a) {
  if (a.exact) {
    if (*a.exact == 0) return std::nullopt;
    return exact(1 / *a.exact);
  }
  return closed(numbers_.quotient(Numbers::integer(1), a.closed));
}

template <int kBits>
std::optional<FormulaValue<kBits>> FormulaEvaluation<kBits>::whole_power(const Value& base,
                                                                         const Integer& exponent) {
  if (base.exact) {
    const Rational& number = *base.exact;
    if (number == 0) {
      if (exponent < 0) return std::nullopt;
      return exact(exponent == 0 ? 1 : 0);
    }
    if (number == 1) return exact(1);
    if (number == -1) return exact(exponent % 2 == 0 ? 1 : -1);
    if (abs(exponent) > kMostBits) return std::nullopt;
    const int n = exponent.convert_to<int>();
    const auto size = static_cast<unsigned>(std::abs(n));
    if (bits_of(number) * size > kMostBits + bits_of(number)) return std::nullopt;
    const int64_t limbs = static_cast<int64_t>(bits_of(number) * size) / 64 + 1;
    budget_.limb_products -= limbs * limbs;
    if (budget_.limb_products < 0) return std::nullopt;
    const Integer top = boost::multiprecision::pow(numerator(number), size);
    const Integer bottom = boost::multiprecision::pow(denominator(number), size);
    return exact(n < 0 ? Rational(bottom, top) : Rational(top, bottom));
  }
  if (abs(exponent) > kMostExponent) {
    return closed(numbers_.power(base.closed, Numbers::rational(Rational(exponent))));
  }
  return closed(numbers_.integer_power(base.closed, exponent.convert_to<int>()));
}

template <int kBits>
std::optional<FormulaValue<kBits>> FormulaEvaluation<kBits>::root(Value radicand,
                                                                  const Integer& index) {
  if (index < 1 || index > kMostIndex) return std::nullopt;
  const int k = index.convert_to<int>();
  if (k == 1) return radicand;
  if (radicand.exact) {
    const Rational& number = *radicand.exact;
    // The real root of a negative number, where there is one.
    const bool is_negative = number < 0;
    if (is_negative && k % 2 == 1) {
      Maybe positive = root(Value{.exact = -number, .closed = {}}, index);
      return positive ? negative(std::move(*positive)) : std::nullopt;
    }
    const std::optional<Integer> top = exact_root(numerator(number), k);
    const std::optional<Integer> bottom = top ? exact_root(denominator(number), k) : std::nullopt;
    if (bottom) return exact(Rational(*top, *bottom));
  }
  if (!radicand.exact && k % 2 == 1 && radicand.closed.im == 0 && radicand.closed.re < 0) {
    Maybe positive = negative(std::move(radicand));
    Maybe rooted = positive ? root(std::move(*positive), index) : std::nullopt;
    return rooted ? negative(std::move(*rooted)) : std::nullopt;
  }
  if (k > 2) budget_.transcendental -= 2;
  if (budget_.transcendental < 0) return std::nullopt;
  return closed(numbers_.root(radicand.as_closed(), k));
}

template <int kBits>
std::optional<FormulaValue<kBits>> FormulaEvaluation<kBits>::power(const Formula& base,
                                                                   const Formula& exponent) {
  Maybe power = value(exponent);
  if (!power) return std::nullopt;
  if (base.kind == FormulaKind::kE) {
    budget_.transcendental -= 3;
    if (budget_.transcendental < 0) return std::nullopt;
    return closed(numbers_.exponential(power->as_closed()));
  }
  Maybe of = value(base);
  if (!of) return std::nullopt;
  if (power->exact) {
    const Integer bottom = denominator(*power->exact);
    if (bottom == 1) return whole_power(*of, numerator(*power->exact));
    const bool is_negative = of->exact && *of->exact < 0;
    if (bottom <= kMostIndex && !is_negative) {
      const Integer top = numerator(*power->exact);
      Maybe rooted = root(std::move(*of), bottom);
      return rooted ? whole_power(*rooted, top) : std::nullopt;
    }
  }
  budget_.transcendental -= 5;
  if (budget_.transcendental < 0) return std::nullopt;
  return closed(numbers_.power(of->as_closed(), power->as_closed()));
}

template <int kBits>
std::optional<Integer> FormulaEvaluation<kBits>::whole(const Formula& formula) {
  const Maybe number = value(formula);
  if (!number || !number->exact || denominator(*number->exact) != 1) return std::nullopt;
  return numerator(*number->exact);
}

template <int kBits>
std::optional<FormulaValue<kBits>> FormulaEvaluation<kBits>::integer_function(
    const std::string& name, const std::vector<Value>& args) {
  std::vector<Integer> numbers;
  for (const Value& arg : args) {
    if (!arg.exact) return std::nullopt;
    if (name == "mod") continue;
    if (denominator(*arg.exact) != 1) return std::nullopt;
    numbers.push_back(numerator(*arg.exact));
  }
  const auto charge = [this](int64_t steps, std::size_t bits) {
    budget_.limb_products -= steps * static_cast<int64_t>(bits / 64 + 1) + 50;
    return budget_.limb_products > 0;
  };
  if (name == "factorial") {
    if (numbers[0] < 0 || numbers[0] > kMostFactorial) return std::nullopt;
    const int n = numbers[0].convert_to<int>();
    Integer out = 1;
    if (!charge(n, static_cast<std::size_t>(n) * 8)) return std::nullopt;
    for (int i = 2; i <= n; ++i) out *= i;
    return exact(Rational(out));
  }
  if (name == "binom" || name == "permutations") {
    const Integer& n = numbers[0];
    Integer k = numbers[1];
    if (n < 0 || k < 0 || n > 1'000'000'000) return std::nullopt;
    if (k > n) return exact(0);
    if (name == "binom" && k > n / 2) k = n - k;
    if (k > kMostBinomial) return std::nullopt;
    const int steps = k.convert_to<int>();
    if (!charge(2 * steps, static_cast<std::size_t>(steps) * 30)) return std::nullopt;
    Integer out = 1;
    for (int i = 0; i < steps; ++i) {
      out *= n - i;
      if (name == "binom") out /= i + 1;
    }
    return exact(Rational(out));
  }
  if (name == "mod") {
    const Rational& of = *args[0].exact;
    const Rational& by = *args[1].exact;
    if (by <= 0 || !spends(of, by)) return std::nullopt;
    const Rational quotient = of / by;
    return exact(of - by * Rational(floor_of(quotient)));
  }
  Integer out = abs(numbers[0]);
  for (std::size_t i = 1; i < numbers.size(); ++i) {
    const Integer next = abs(numbers[i]);
    if (!charge(static_cast<int64_t>(bits_of(out) / 8), bits_of(next))) return std::nullopt;
    if (name == "gcd") {
      out = boost::multiprecision::gcd(out, next);
    } else if (name == "lcm") {
      out = boost::multiprecision::lcm(out, next);
    } else if (name == "max") {
      out = std::max(numbers[i], i == 1 ? numbers[0] : out);
    } else {
      out = std::min(numbers[i], i == 1 ? numbers[0] : out);
    }
  }
  return exact(Rational(out));
}

template <int kBits>
std::optional<FormulaValue<kBits>> FormulaEvaluation<kBits>::rounded_down(Value a, bool is_up) {
  if (a.exact) return exact(Rational(is_up ? -floor_of(-*a.exact) : floor_of(*a.exact)));
  if (a.closed.im != 0 || log2_size(a.closed) > 60) return std::nullopt;
  const typename Numbers::Real floor = boost::multiprecision::floor(a.closed.re);
  const typename Numbers::Real part = a.closed.re - floor;
  if (part < 1e-30 || part > 1 - 1e-30) return std::nullopt;  // it may be a whole number
  const Integer whole(floor.template convert_to<int64_t>());
  return exact(Rational(is_up ? whole + 1 : whole));
}

template <int kBits>
std::optional<FormulaValue<kBits>> FormulaEvaluation<kBits>::absolute(Value a) {
  if (a.exact) return exact(abs(*a.exact));
  if (a.closed.im == 0) return a.closed.re < 0 ? negative(std::move(a)) : std::move(a);
  Number conjugate = a.closed;
  conjugate.im = -conjugate.im;
  Number square = Numbers::product(a.closed, conjugate);
  square.im = 0;
  return closed(numbers_.root(square));
}

/// sin, cos, ... by exponentials, their inverses by logarithms.
template <int kBits>
std::optional<FormulaValue<kBits>> FormulaEvaluation<kBits>::circular(const std::string& name,
                                                                      Value arg) {
  budget_.transcendental -= 6;
  if (budget_.transcendental < 0) return std::nullopt;
  if (arg.exact && *arg.exact == 0) {
    if (name == "cos" || name == "cosh" || name == "sec" || name == "sech") return exact(1);
    if (name != "arccos" && name != "arccot" && name != "cot" && name != "csc") return exact(0);
  }
  const Number one = Numbers::integer(1);
  Number i = one;
  std::swap(i.re, i.im);
  const Number z = arg.as_closed();
  const auto times = [](const Number& a, const Number& b) { return Numbers::product(a, b); };
  const auto half_of = [&](const Number& a) { return numbers_.quotient(a, Numbers::integer(2)); };
  const auto minus = [](Number a) {
    a.re = -a.re;
    a.im = -a.im;
    return a;
  };
  if (name.starts_with("arc")) {
    std::optional<Number> of = z;
    const std::string inner = name.substr(3);
    if (inner == "sec" || inner == "csc") of = numbers_.quotient(one, z);
    if (!of) return std::nullopt;
    if (inner == "tan" || inner == "cot") {
      const auto low = numbers_.logarithm(Numbers::sum(one, times(i, *of), -1));
      const auto high = numbers_.logarithm(Numbers::sum(one, times(i, *of), 1));
      if (!low || !high) return std::nullopt;
      const auto tangent = half_of(times(i, Numbers::sum(*low, *high, -1)));
      if (inner == "tan" || !tangent) return closed(tangent);
      const auto right = half_of(numbers_.pi());
      return closed(Numbers::sum(*right, *tangent, -1));
    }
    const auto height = numbers_.root(Numbers::sum(one, times(*of, *of), -1));
    if (!height) return std::nullopt;
    const auto log = numbers_.logarithm(Numbers::sum(times(i, *of), *height, 1));
    if (!log) return std::nullopt;
    const Number sine = minus(times(i, *log));
    if (inner == "sin" || inner == "csc") return closed(sine);
    const auto right = half_of(numbers_.pi());
    return closed(Numbers::sum(*right, sine, -1));
  }
  const bool is_hyperbolic = name.ends_with('h');
  const std::string plain = is_hyperbolic ? name.substr(0, name.size() - 1) : name;
  const Number exponent = is_hyperbolic ? z : times(i, z);
  const auto up = numbers_.exponential(exponent);
  const auto down = up ? numbers_.quotient(one, *up) : std::nullopt;
  if (!down) return std::nullopt;
  const auto cosine = half_of(Numbers::sum(*up, *down, 1));
  const auto odd = half_of(Numbers::sum(*up, *down, -1));
  if (!cosine || !odd) return std::nullopt;
  const Number sine = is_hyperbolic ? *odd : minus(times(i, *odd));
  if (plain == "sin") return closed(sine);
  if (plain == "cos") return closed(cosine);
  if (plain == "tan") return closed(numbers_.quotient(sine, *cosine));
  if (plain == "cot") return closed(numbers_.quotient(*cosine, sine));
  if (plain == "sec") return closed(numbers_.quotient(one, *cosine));
  if (plain == "csc") return closed(numbers_.quotient(one, sine));
  return std::nullopt;
}

template <int kBits>
std::optional<FormulaValue<kBits>> FormulaEvaluation<kBits>::function(const Formula& formula) {
  const std::string& name = formula.text;
  std::vector<Value> args;
  for (const Formula& arg : formula.args) {
    Maybe each = value(arg);
    if (!each) return std::nullopt;
    args.push_back(std::move(*each));
  }
  if (name == "floor" || name == "ceil") return rounded_down(std::move(args[0]), name == "ceil");
  if (name == "abs") return absolute(std::move(args[0]));
  if (name == "degree") {
    Maybe turn = product(std::move(args[0]), Value{.exact = std::nullopt, .closed = numbers_.pi()});
    return turn ? product(std::move(*turn), Value{.exact = Rational(1, 180), .closed = {}})
                : std::nullopt;
  }
  if (name == "ln" || name == "log") {
    budget_.transcendental -= 4;
    if (budget_.transcendental < 0) return std::nullopt;
    if (args[0].exact && *args[0].exact == 1) return exact(0);
    const auto of = numbers_.logarithm(args[0].as_closed());
    if (name == "ln" || !of) return closed(of);
    const auto base = args.size() > 1 ? numbers_.logarithm(args[1].as_closed())
                                      : numbers_.logarithm(Numbers::integer(10));
    return base ? closed(numbers_.quotient(*of, *base)) : std::nullopt;
  }
  for (const char* each :
       {"factorial", "binom", "permutations", "mod", "gcd", "lcm", "max", "min"}) {
    if (name == each) return integer_function(name, args);
  }
  return args.size() == 1 ? circular(name, std::move(args[0])) : std::nullopt;
}

template <int kBits>
std::optional<FormulaValue<kBits>> FormulaEvaluation<kBits>::series(const Formula& formula) {
  if (formula.text != "sum" && formula.text != "prod") return std::nullopt;
  const std::optional<Integer> from = whole(formula.args[1]);
  const std::optional<Integer> to = from ? whole(formula.args[2]) : std::nullopt;
  if (!to || *to - *from > kMostTerms) return std::nullopt;
  const std::string& name = formula.args[0].text;
  const auto outer = integers_.find(name);
  const std::optional<int64_t> hidden =
      outer == integers_.end() ? std::nullopt : std::optional<int64_t>(outer->second);
  const bool is_sum = formula.text == "sum";
  Maybe total = exact(is_sum ? 0 : 1);
  for (Integer k = *from; total && k <= *to; ++k) {
    budget_.limb_products -= 1'000;
    if (budget_.limb_products < 0 || abs(k) > 1'000'000'000) return std::nullopt;
    integers_[name] = k.convert_to<int64_t>();
    Maybe term = value(formula.args[3]);
    if (!term) {
      total.reset();
      break;
    }
    total = is_sum ? sum(std::move(*total), std::move(*term))
                   : product(std::move(*total), std::move(*term));
  }
  integers_.erase(name);
  if (hidden) integers_[name] = *hidden;
  return total;
}

template <int kBits>
std::optional<FormulaValue<kBits>> FormulaEvaluation<kBits>::value(const Formula& formula) {
  switch (formula.kind) {
    case FormulaKind::kNumber: {
      std::optional<Rational> number = rational_of(formula.text);
      return number ? exact(std::move(*number)) : std::nullopt;
    }
    case FormulaKind::kSymbol: {
      if (const auto known = integers_.find(formula.text); known != integers_.end())
        return exact(Rational(known->second));
      if (symbols_ == SymbolValues::kInteger) return std::nullopt;
      return closed(symbols_ == SymbolValues::kReal ? numbers_.real_symbol(formula.text)
                                                    : numbers_.symbol(formula.text));
    }
    case FormulaKind::kPi:
      return closed(numbers_.pi());
    case FormulaKind::kE:
      budget_.transcendental -= 3;
      if (budget_.transcendental < 0) return std::nullopt;
      return closed(numbers_.exponential(Numbers::integer(1)));
    case FormulaKind::kI:
      return closed(numbers_.root(Numbers::integer(-1)));
    case FormulaKind::kInfinity:
    case FormulaKind::kEither:
      return std::nullopt;
    case FormulaKind::kSum:
    case FormulaKind::kProduct: {
      Maybe total = value(formula.args[0]);
      for (std::size_t i = 1; total && i < formula.args.size(); ++i) {
        Maybe next = value(formula.args[i]);
        if (!next) return std::nullopt;
        total = formula.kind == FormulaKind::kSum ? sum(std::move(*total), std::move(*next))
                                                  : product(std::move(*total), std::move(*next));
      }
      return total;
    }
    case FormulaKind::kNegative:
    case FormulaKind::kInverse: {
      Maybe of = value(formula.args[0]);
      if (!of) return std::nullopt;
      return formula.kind == FormulaKind::kNegative ? negative(std::move(*of))
                                                    : inverse(std::move(*of));
    }
    case FormulaKind::kPower:
      return power(formula.args[0], formula.args[1]);
    case FormulaKind::kRoot: {
      const std::optional<Integer> index = whole(formula.args[1]);
      Maybe of = index ? value(formula.args[0]) : std::nullopt;
      return of ? root(std::move(*of), *index) : std::nullopt;
    }
    case FormulaKind::kFunction:
      return function(formula);
    case FormulaKind::kSeries:
      return series(formula);
  }
  return std::nullopt;
}

template class FormulaEvaluation<kFewBits>;
template class FormulaEvaluation<kManyBits>;

}  // namespace slime::reward
