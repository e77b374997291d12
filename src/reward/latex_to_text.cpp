#include "reward/latex_to_text.h"

#include <algorithm>
#include <array>

#include "reward/latex_symbols.h"
#include "reward/python_text.h"

namespace slime::reward {
namespace {

constexpr int kDepthLimit = 100;  // answers nest a few levels; each level costs a stack frame

/// Where mathematical alphabets begin in Unicode: capitals, small letters, digits (0: digits stay).
struct Alphabet {
  std::string_view macro;
  uint32_t capital;
  uint32_t small;
  uint32_t digit;
  /// Letters that have an older code point of their own, as (letter, code point).
  std::array<std::pair<char, uint32_t>, 8> exceptions;
};

constexpr std::array<Alphabet, 7> kAlphabets{{
    {"mathbf", 0x1d400, 0x1d41a, 0x1d7ce, {}},
    {"mathbb",
     0x1d538,
     0x1d552,
     0,
     {{{'C', 0x2102},
       {'H', 0x210d},
       {'N', 0x2115},
       {'P', 0x2119},
       {'Q', 0x211a},
       {'R', 0x211d},
       {'Z', 0x2124}}}},
    {"mathcal",
     0x1d49c,
     0x1d4b6,
     0,
     {{{'B', 0x212c},
       {'E', 0x2130},
       {'F', 0x2131},
       {'H', 0x210b},
       {'I', 0x2110},
       {'L', 0x2112},
       {'M', 0x2133},
       {'R', 0x211b}}}},
    {"mathscr",
     0x1d49c,
     0x1d4b6,
     0,
     {{{'B', 0x212c},
       {'E', 0x2130},
       {'F', 0x2131},
       {'H', 0x210b},
       {'I', 0x2110},
       {'L', 0x2112},
       {'M', 0x2133},
       {'R', 0x211b}}}},
    {"mathfrak",
     0x1d504,
     0x1d51e,
     0,
     {{{'C', 0x212d}, {'H', 0x210c}, {'I', 0x2111}, {'R', 0x211c}, {'Z', 0x2128}}}},
    {"mathsf", 0x1d5a0, 0x1d5ba, 0, {}},
    {"mathit", 0x1d434, 0x1d44e, 0, {}},
}};

constexpr std::array<std::pair<std::string_view, std::string_view>, 8> kAccents{
    {{"bar", "\u0305"},
     {"hat", "\u0302"},
     {"vec", "\u20d7"},
     {"dot", "\u0307"},
     {"ddot", "\u0308"},
     {"tilde", "\u0303"},
     {"acute", "\u0301"},
     {"grave", "\u0300"}}};

constexpr auto kMatrices = std::to_array<std::string_view>(
    {"array", "pmatrix", "bmatrix", "smallmatrix", "psmallmatrix", "bsmallmatrix", "matrix"});

std::string in_alphabet(const Alphabet& alphabet, std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto* exception =
        std::find_if(alphabet.exceptions.begin(), alphabet.exceptions.end(),
                     [c](const auto& entry) { return entry.second != 0 && entry.first == c; });
    if (exception != alphabet.exceptions.end()) {
      text::python::append_point(exception->second, out);
    } else if (c >= 'A' && c <= 'Z') {
      text::python::append_point(alphabet.capital + static_cast<uint32_t>(c - 'A'), out);
    } else if (c >= 'a' && c <= 'z') {
      text::python::append_point(alphabet.small + static_cast<uint32_t>(c - 'a'), out);
    } else if (is_digit(c) && alphabet.digit != 0) {
      text::python::append_point(alphabet.digit + static_cast<uint32_t>(c - '0'), out);
    } else {
      out += c;
    }
  }
  return out;
}

std::string with_accent(std::string_view text, std::string_view accent) {
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t bytes = point_bytes(text, i);
    out.append(text.substr(i, bytes)).append(accent);
    i += bytes;
  }
  return out;
}

/// One pass from left to right. Braces are dropped wherever they stand; only the arguments of the
/// few macros that need them are taken as units.
class Converter {
 public:
  explicit Converter(std::string_view latex) : latex_(latex) {}

  std::optional<std::string> convert() {
    std::string out;
    while (!at_end() && !too_deep_) element(out);
    if (too_deep_) return std::nullopt;
    return out;
  }

 private:
  bool at_end() const { return position_ >= latex_.size(); }
  char peek() const { return latex_[position_]; }

  void skip_blanks() {
    while (!at_end() && is_blank(peek())) ++position_;
  }

  /// One character, group brace or macro with its arguments.
  void element(std::string& out) {
    const char c = peek();
    if (c == '\\') {
      macro(out);
    } else if (c == '{' || c == '}') {
      ++position_;
    } else if (c == '&') {
      out += matrix_depth_ > 0 ? " " : "   ";
      ++position_;
    } else if (c == '~') {
      out += "\u00a0";
      ++position_;
    } else {
      out += c;
      ++position_;
    }
  }

  /// The text of a group in braces, a macro, or one character.
  std::string argument() {
    skip_blanks();
    std::string out;
    if (at_end() || peek() == '}') return out;
    if (++depth_ > kDepthLimit) too_deep_ = true;
    if (peek() != '{') {
      if (peek() == '\\') {
        macro(out);
      } else {
        const std::size_t bytes = point_bytes(latex_, position_);
        out = latex_.substr(position_, bytes);
        position_ += bytes;
      }
    } else {
      ++position_;
      for (int open = 1; !at_end() && !too_deep_;) {
        if (peek() == '{') ++open;
        if (peek() == '}' && --open == 0) break;
        element(out);
      }
      if (!at_end()) ++position_;
    }
    --depth_;
    return out;
  }

  /// Skips [...]; true when there was one.
  void skip_option() {
    const std::size_t begin = position_;
    skip_blanks();
    if (!at_end() && peek() == '[') {
      const std::size_t end = latex_.find(']', position_);
      position_ = end == std::string_view::npos ? begin : end + 1;
    } else {
      position_ = begin;
    }
  }

  std::string_view macro_name() {
    const std::size_t begin = ++position_;  // after the backslash
    while (!at_end() && is_letter(peek())) ++position_;
    if (position_ == begin) {
      if (!at_end()) position_ += point_bytes(latex_, position_);
      return latex_.substr(begin, position_ - begin);
    }
    const std::string_view name = latex_.substr(begin, position_ - begin);
    skip_blanks();
    return name;
  }

  void macro(std::string& out) {
    if (too_deep_) {
      position_ = latex_.size();
      return;
    }
    const std::string_view name = macro_name();
    if (name.empty()) return;
    if (!is_letter(name.front())) {
      control_symbol(name, out);
    } else if (name == "frac" || name == "dfrac" || name == "tfrac") {
      out += ' ';  // so that "2\frac{1}{2}" becomes a mixed number
      out += argument();
      out += '/';
      out += argument();
    } else if (name == "sqrt") {
      skip_option();
      out += "\u221a(";
      out += argument();
      out += ')';
    } else if (name == "mbox") {
      argument();
    } else if (name == "begin" || name == "end") {
      environment(name == "begin", out);
    } else if (const auto* alphabet =
                   std::find_if(kAlphabets.begin(), kAlphabets.end(),
                                [name](const Alphabet& entry) { return entry.macro == name; });
               alphabet != kAlphabets.end()) {
      out += in_alphabet(*alphabet, argument());
    } else if (const auto* accent =
                   std::find_if(kAccents.begin(), kAccents.end(),
                                [name](const auto& entry) { return entry.first == name; });
               accent != kAccents.end()) {
      out += with_accent(argument(), accent->second);
    } else if (const std::optional<std::string_view> symbol = latex_symbol(name)) {
      out += *symbol;
    }
    // \text, \mathrm, \left, \binom and unknown macros leave nothing but what their braces hold.
  }

  void control_symbol(std::string_view name, std::string& out) {
    if (name == "\\") {
      out += matrix_depth_ > 0 ? ";" : "\n";
    } else if (name == "," || name == " " || name == ";" || name == ":" || is_blank(name.front())) {
      out += ' ';
    } else if (name == "{" || name == "}" || name == "%" || name == "$" || name == "&" ||
               name == "_" || name == "#") {
      out += name;
    }
  }

  /// After \begin or \end: the name in braces. A matrix becomes "[ a b; c d ]".
  void environment(bool begins, std::string& out) {
    if (at_end() || peek() != '{') return;
    const std::size_t end = std::min(latex_.find('}', position_), latex_.size());
    const std::string_view name = latex_.substr(position_ + 1, end - position_ - 1);
    position_ = std::min(end + 1, latex_.size());
    const bool is_matrix = std::find(kMatrices.begin(), kMatrices.end(), name) != kMatrices.end();
    if (!is_matrix) return;
    if (begins && name == "array") argument_as_is();
    out += begins ? "[ " : " ]";
    matrix_depth_ = std::max(matrix_depth_ + (begins ? 1 : -1), 0);
  }

  /// The column specification of an array.
  void argument_as_is() {
    if (!at_end() && peek() == '{')
      position_ = std::min(latex_.find('}', position_), latex_.size() - 1) + 1;
  }

  const std::string_view latex_;
  std::size_t position_ = 0;
  int depth_ = 0;
  int matrix_depth_ = 0;  // of environments that are open
  bool too_deep_ = false;
};

}  // namespace

std::optional<std::string> latex_to_text(std::string_view latex) {
  std::optional<std::string> text = Converter(latex).convert();
  if (!text) return std::nullopt;
  constexpr std::array<std::pair<std::string_view, std::string_view>, 6> kPlain{{{"\u221a", "sqrt"},
                                                                                 {"\u03c0", "pi"},
                                                                                 {"\u221e", "inf"},
                                                                                 {"\u222a", "U"},
                                                                                 {"\u00b7", "*"},
                                                                                 {"\u00d7", "*"}}};
  for (const auto& [from, to] : kPlain) *text = replaced(*text, from, to);
  return std::string(stripped(*text));
}

}  // namespace slime::reward
