#pragma once

/// Complex numbers with a bound on their error and on the size of their conjugates: the arithmetic in
/// which closed forms are compared (reward/closed_form.h says why that decides).
///
/// Floating point of 512 or 2,048 bits. What is algebraic (integers, + - * /, roots) has a separation bound;
/// for logarithms, exponentials and other powers no bound is known: there a number counts as 0 when it
/// is smaller than 2 to the minus `text_bits`.

#include <boost/multiprecision/cpp_bin_float.hpp>
#include <boost/multiprecision/cpp_int.hpp>
#include <optional>
#include <string_view>
#include <vector>

namespace slime::reward {

/// Most comparisons are decided in the first precision, at a tenth of the time.
inline constexpr int kFewBits = 512;
inline constexpr int kManyBits = 2048;

template <int kBits>
using RealOf = boost::multiprecision::number<
    boost::multiprecision::cpp_bin_float<kBits, boost::multiprecision::digit_base_2>,
    boost::multiprecision::et_off>;

inline constexpr double kNoError = -1e300;  // log2 of an error that is 0

/// A complex number with what is known about it; all bounds as log2.
template <int kBits>
struct ClosedNumber {
  using Real = RealOf<kBits>;
  Real re = 0;
  Real im = 0;
  double error = kNoError;  // of the absolute error
  /// The number is U / L with algebraic integers U and L; no conjugate of U exceeds `numerator`,
  /// none of L `denominator`.
  double numerator = 0;
  double denominator = 0;
};

/// The operations, with what one comparison has to remember: which roots occur, and how much work was
/// done. Operations without a value (division by zero, too many roots or logarithms) give nothing.
template <int kBits>
class ClosedNumbers {
 public:
  using Real = RealOf<kBits>;
  using Number = ClosedNumber<kBits>;

  /// Symbols have their values at generic point number `point`. `is_transcendental`: a logarithm or the
  /// like occurs on one of the sides; without one, pi is replaced by a generic number too.
  /// `most_transcendental` bounds operations that take a millisecond or two each.
  ClosedNumbers(int point, bool is_transcendental, double text_bits, int most_transcendental);

  static Number integer(const Real& number);
  static Number rational(const boost::multiprecision::cpp_rational& number);
  static Number sum(const Number& a, const Number& b, int sign);
  static Number product(const Number& a, const Number& b);

  Number symbol(std::string_view name);
  /// A real number at which different functions differ: negative at every second point.
  Number real_symbol(std::string_view name);
  Number pi();
  std::optional<Number> quotient(const Number& a, const Number& b) const;
  /// The principal root; `index` is at least 2.
  std::optional<Number> root(const Number& radicand, int index = 2);
  std::optional<Number> logarithm(const Number& a);
  std::optional<Number> exponential(const Number& a);
  std::optional<Number> power(const Number& a, const Number& b);
  std::optional<Number> integer_power(const Number& a, int n) const;

  /// Whether the number is 0; nothing when the precision does not tell.
  std::optional<bool> is_zero(const Number& v) const;

 private:
  struct Root {
    Number radicand;
    int index;
    Number value;
  };

  Number generic(double re, double im) const;
  std::optional<Number> square_root(const Number& radicand) const;
  std::optional<Number> other_root(const Number& radicand, int index);

  const int point_;
  const bool is_transcendental_;
  const double text_bits_;
  const int most_transcendental_;
  std::vector<Root> roots_;  // all of them, of both sides
  double log_degree_ = 0;    // log2 of the product of their indices
  bool uses_symbols_ = false;
  int num_transcendental_ = 0;
};

/// At least log2 of |v|, at most one and a half more.
template <int kBits>
double log2_size(const ClosedNumber<kBits>& v);

}  // namespace slime::reward
