#include "reward/plain_latex.h"

#include <algorithm>
#include <map>
#include <optional>

#include "reward/digits.h"
#include "reward/python_text.h"

namespace slime::reward {
namespace {

constexpr int kMostNested = 50;

/// Code points to what stands for them.
const std::map<char32_t, std::string_view>& unicode_signs() {
  static const std::map<char32_t, std::string_view> kSigns{
      {U'\u2212', "-"},
      {U'\u2013', "-"},
      {U'\u2014', "-"},
      {U'\u00d7', "*"},
      {U'\u00b7', "*"},
      {U'\u22c5', "*"},
      {U'\u2217', "*"},
      {U'\u2219', "*"},
      {U'\u00f7', "/"},
      {U'\u2215', "/"},
      {U'\u2044', "/"},
      {U'\u221a', "\\sqrt "},
      {U'\u221e', "\\infty "},
      {U'\u2264', "\\le "},
      {U'\u2a7d', "\\le "},
      {U'\u2265', "\\ge "},
      {U'\u2a7e', "\\ge "},
      {U'\u2260', "\\ne "},
      {U'\u2248', "\\approx "},
      {U'\u2261', "\\equiv "},
      {U'\u222a', "\\cup "},
      {U'\u2229', "\\cap "},
      {U'\u2208', "\\in "},
      {U'\u2205', "\\emptyset "},
      {U'\u2216', "\\setminus "},
      {U'\u00b1', "\\pm "},
      {U'\u2213', "\\mp "},
      {U'\u2026', "\\ldots "},
      {U'\u22ef', "\\ldots "},
      {U'\u00b0', "\\degree "},
      {U'\u211d', "\\reals "},
      {U'\u2124', "\\integers "},
      {U'\u2115', "\\naturals "},
      {U'\u211a', "\\rationals "},
      {U'\u2102', "\\complexes "},
      {U'\u2220', "\\angle "},
      {U'\u25b3', "\\triangle "},
      {U'\u2032', "'"},
      {U'\u2019', "'"},
      {U'\u230a', "\\lfloor "},
      {U'\u230b', "\\rfloor "},
      {U'\u2308', "\\lceil "},
      {U'\u2309', "\\rceil "},
      {U'\u27e8', "\\langle "},
      {U'\u27e9', "\\rangle "},
      {U'\u2223', "|"},
      {U'\u20ac', "\\euro "},
      {U'\u00a3', "\\pounds "},
      {U'\u00a5', "\\yen "},
      {U'\u00a0', " "},
      {U'\u2009', " "},
      {U'\u202f', " "},
      {U'\u2003', " "},
      {U'\u3000', " "},
      {U'\u3001', ","},
      {U'\u3002', "."},
      {U'\u201c', ""},
      {U'\u201d', ""},
      {U'\u00bd', "\\frac{1}{2}"},
      {U'\u2153', "\\frac{1}{3}"},
      {U'\u2154', "\\frac{2}{3}"},
      {U'\u00bc', "\\frac{1}{4}"},
      {U'\u00be', "\\frac{3}{4}"},
      {U'\u2155', "\\frac{1}{5}"},
      {U'\u2156', "\\frac{2}{5}"},
      {U'\u2157', "\\frac{3}{5}"},
      {U'\u2158', "\\frac{4}{5}"},
      {U'\u2159', "\\frac{1}{6}"},
      {U'\u215a', "\\frac{5}{6}"},
      {U'\u215b', "\\frac{1}{8}"},
      {U'\u215c', "\\frac{3}{8}"},
      {U'\u215d', "\\frac{5}{8}"},
      {U'\u215e', "\\frac{7}{8}"},
      {U'\u2070', "^{0}"},
      {U'\u00b9', "^{1}"},
      {U'\u00b2', "^{2}"},
      {U'\u00b3', "^{3}"},
      {U'\u2074', "^{4}"},
      {U'\u2075', "^{5}"},
      {U'\u2076', "^{6}"},
      {U'\u2077', "^{7}"},
      {U'\u2078', "^{8}"},
      {U'\u2079', "^{9}"},
      {U'\u207f', "^{n}"},
      {U'\u207a', "^{+}"},
      {U'\u207b', "^{-}"},
      {U'\u2080', "_{0}"},
      {U'\u2081', "_{1}"},
      {U'\u2082', "_{2}"},
      {U'\u2083', "_{3}"},
      {U'\u2084', "_{4}"},
      {U'\u2085', "_{5}"},
      {U'\u2086', "_{6}"},
      {U'\u2087', "_{7}"},
      {U'\u2088', "_{8}"},
      {U'\u2089', "_{9}"},
      {U'\u03b1', "\\alpha "},
      {U'\u03b2', "\\beta "},
      {U'\u03b3', "\\gamma "},
      {U'\u03b4', "\\delta "},
      {U'\u03b5', "\\epsilon "},
      {U'\u03b6', "\\zeta "},
      {U'\u03b7', "\\eta "},
      {U'\u03b8', "\\theta "},
      {U'\u03b9', "\\iota "},
      {U'\u03ba', "\\kappa "},
      {U'\u03bb', "\\lambda "},
      {U'\u03bc', "\\mu "},
      {U'\u03bd', "\\nu "},
      {U'\u03be', "\\xi "},
      {U'\u03c0', "\\pi "},
      {U'\u03c1', "\\rho "},
      {U'\u03c3', "\\sigma "},
      {U'\u03c4', "\\tau "},
      {U'\u03c6', "\\phi "},
      {U'\u03d5', "\\phi "},
      {U'\u03c7', "\\chi "},
      {U'\u03c8', "\\psi "},
      {U'\u03c9', "\\omega "},
      {U'\u0393', "\\Gamma "},
      {U'\u0394', "\\Delta "},
      {U'\u0398', "\\Theta "},
      {U'\u039b', "\\Lambda "},
      {U'\u03a3', "\\Sigma "},
      {U'\u03a6', "\\Phi "},
      {U'\u03a9', "\\Omega "},
      {U'\u2211', "\\sum "},
      {U'\u220f', "\\prod "},
      {U'\u2245', "\\cong "},
      {U'\u221d', "\\propto "},
      {U'\u2192', "\\to "},
      {U'\u2234', ""},
  };
  return kSigns;
}

/// Signs as commands; full-width ASCII as ASCII; digits of every script as 0 to 9.
std::string without_unicode_signs(std::string_view text) {
  const std::string digits = with_ascii_digits(text);
  std::string out;
  for (std::size_t i = 0; i < digits.size();) {
    const std::size_t begin = i;
    const char32_t point = next_point(digits, i);
    if (i - begin < 2) {
      out += digits[begin];
    } else if (point > 0xff00 && point < 0xff5f) {
      out += static_cast<char>(point - 0xfee0);
    } else if (const auto sign = unicode_signs().find(point); sign != unicode_signs().end()) {
      out += sign->second;
    } else {
      out.append(digits, begin, i - begin);
    }
  }
  return out;
}

enum class Use {
  kDropped,    // the command alone
  kSpace,      // a space stands for it
  kArgument,   // dropped with the group that follows
  kInside,     // its group stays, without it
  kText,       // the same, and letters in it are words
  kStands,     // the text stands for it
  kStandsFor2  // as kArgument, then kInside: \textcolor{red}{5}
};

struct Command {
  Use use;
  std::string_view text;
};

const std::map<std::string_view, Command>& latex_commands() {
  static const std::map<std::string_view, Command> kTable = [] {
    std::map<std::string_view, Command> table;
    const auto add = [&table](Use use, std::initializer_list<std::string_view> names) {
      for (const std::string_view name : names) table.emplace(name, Command{use, ""});
    };
    const auto same = [&table](std::string_view text,
                               std::initializer_list<std::string_view> names) {
      for (const std::string_view name : names) table.emplace(name, Command{Use::kStands, text});
    };
    add(Use::kDropped,
        {"left",    "right",    "middle",     "big",          "Big",        "bigg",
         "Bigg",    "bigl",     "bigr",       "Bigl",         "Bigr",       "biggl",
         "biggr",   "Biggl",    "Biggr",      "displaystyle", "textstyle",  "scriptstyle",
         "limits",  "nolimits", "large",      "Large",        "LARGE",      "huge",
         "Huge",    "small",    "normalsize", "tiny",         "ensuremath", "bf",
         "it",      "rm",       "sf",         "tt",           "bfseries",   "therefore",
         "because", "strut",    "allowbreak", "nobreak",      "centering",  "noindent",
         "!",       "/"});
    add(Use::kSpace, {",", ";", ":", " ", ">", "quad", "qquad", "enspace", "thinspace", "medspace",
                      "thickspace", "hfill", "newline", "par", "space"});
    add(Use::kArgument, {"color", "hspace", "vspace", "phantom", "hphantom", "vphantom", "label",
                         "tag", "kern", "hskip", "mspace", "fontsize"});
    add(Use::kInside, {"mathbf",  "boldsymbol", "bm",      "mathit",   "mathnormal", "mathsf",
                       "mathtt",  "mathcal",    "mathscr", "mathfrak", "underline",  "boxed",
                       "fbox",    "emph",       "smash",   "mathclap", "bold",       "mathord",
                       "mathbin", "mathrel",    "pmb",     "cancel",   "framebox",   "underbrace"});
    add(Use::kText,
        {"text", "textbf", "textit", "textrm", "textsf", "texttt", "textnormal", "mathrm", "mbox",
         "hbox", "operatorname", "mathop", "textsc", "textup", "textmd", "unit", "operatorname*"});
    add(Use::kStandsFor2, {"textcolor", "colorbox"});
    same("\\frac ", {"frac", "dfrac", "tfrac", "cfrac"});
    same("\\binom ", {"binom", "dbinom", "tbinom"});
    same("\\le ", {"le", "leq", "leqslant", "leqq"});
    same("\\ge ", {"ge", "geq", "geqslant", "geqq"});
    same("\\ne ", {"ne", "neq"});
    same("<", {"lt"});
    same(">", {"gt"});
    same("*", {"cdot", "times", "ast", "cdotp", "bullet"});
    same("/", {"div"});
    same("\\cup ", {"cup", "bigcup"});
    same("\\cap ", {"cap", "bigcap"});
    same("\\emptyset ", {"emptyset", "varnothing"});
    same("\\setminus ", {"setminus", "backslash", "smallsetminus"});
    same("\\{", {"{", "lbrace"});
    same("\\}", {"}", "rbrace"});
    same("|", {"lvert", "rvert", "vert"});
    same("\\mid ", {"mid"});
    same("\\ldots ", {"ldots", "dots", "cdots", "dotsc", "dotsb", "hdots", "dotsm"});
    same("\\infty ", {"infty", "infin"});
    same("\\approx ", {"approx", "simeq", "thickapprox", "thicksim", "sim"});
    same("\\equiv ", {"equiv"});
    same("%", {"%"});
    same("\\dollar ", {"$", "textdollar"});
    same("_", {"_"});
    same("&", {"&"});
    same("\\degree ", {"degree", "textdegree"});
    same("'", {"prime"});
    same("\\phi ", {"phi", "varphi"});
    same("\\epsilon ", {"epsilon", "varepsilon"});
    same("\\theta ", {"theta", "vartheta"});
    same("\\rho ", {"rho", "varrho"});
    same("(", {"lparen"});
    same(")", {"rparen"});
    same("[", {"lbrack"});
    same("]", {"rbrack"});
    same(":", {"colon"});
    same("\\reals ", {"R", "Reals"});
    same("\\integers ", {"Z"});
    same("\\naturals ", {"N"});
    same("\\arcsin ", {"arcsin", "asin"});
    same("\\arccos ", {"arccos", "acos"});
    same("\\arctan ", {"arctan", "atan"});
    same("\\bmod ", {"bmod", "mod"});
    same("\\over ", {"over"});
    return table;
  }();
  return kTable;
}

/// One pass over the text, groups of commands by recursion.
class Plainer {
 public:
  explicit Plainer(std::string_view text)
      : text_(text), has_rows_(text.find("\\begin") != std::string_view::npos) {}

  PlainLatex run() {
    copy(text_.size(), false, 0);
    return std::move(out_);
  }

 private:
  void put(std::string_view text, bool is_text) {
    out_.text += text;
    out_.is_text.resize(out_.text.size(), is_text);
  }

  void skip_spaces() {
    while (at_ < text_.size() && is_blank(text_[at_])) ++at_;
  }

  /// The end of the group that opens at `at_`, before its brace; the end of the text where it does not
  /// close.
  std::size_t group_end() const {
    long open = 0;
    for (std::size_t i = at_; i < text_.size(); ++i) {
      if (text_[i] == '\\') {
        ++i;
      } else if (text_[i] == '{') {
        ++open;
      } else if (text_[i] == '}' && --open == 0) {
        return i;
      }
    }
    return text_.size();
  }

  /// The group or the character that follows, copied or left out.
  void argument(bool is_copied, bool is_text, int depth) {
    skip_spaces();
    if (at_ >= text_.size()) return;
    if (text_[at_] == '[' && !is_copied) {  // \color[rgb]{...}
      const std::size_t end = text_.find(']', at_);
      if (end != std::string_view::npos) at_ = end + 1;
      skip_spaces();
    }
    if (at_ >= text_.size() || text_[at_] != '{') {
      if (!is_copied || at_ >= text_.size()) return;
      if (text_[at_] == '\\') return;  // \mathbf\pi
      put(is_text ? std::string(1, text_[at_]) : "{" + std::string(1, text_[at_]) + "}", is_text);
      ++at_;
      return;
    }
    const std::size_t end = group_end();
    ++at_;
    if (is_copied && depth < kMostNested) {
      put(is_text ? " " : "{", is_text);
      copy(end, is_text, depth + 1);
      put(is_text ? " " : "}", is_text);
    }
    at_ = std::min(end + 1, text_.size());
  }

  /// Between digits, three of which follow and no fourth: a separator of thousands.
  bool joins_thousands() const {
    if (out_.text.empty() || !is_digit(out_.text.back())) return false;
    std::size_t digits = 0;
    while (at_ + digits < text_.size() && is_digit(text_[at_ + digits])) ++digits;
    return digits == 3;
  }

  bool is_degree_mark() {
    for (const std::string_view mark : {"{\\circ}", "\\circ", "{\\degree}", "{\\text{o}}", "{o}"}) {
      if (!text_.substr(at_).starts_with(mark)) continue;
      at_ += mark.size();
      return true;
    }
    return false;
  }

  void command(bool is_text, int depth) {
    ++at_;
    if (at_ >= text_.size()) return;
    std::size_t end = at_;
    while (end < text_.size() && is_letter(text_[end])) ++end;
    if (end == at_) ++end;
    std::string_view name = text_.substr(at_, end - at_);
    at_ = end;
    if (name == "\\") {
      // A command that was escaped twice, but not the end of a row.
      const bool is_command = !has_rows_ && at_ < text_.size() && is_letter(text_[at_]);
      if (is_command) {
        --at_;
        command(is_text, depth);
      } else {
        put("\\\\ ", is_text);
      }
      return;
    }
    if (name == "(" || name == ")" || name == "[" || name == "]") {
      put(" ", is_text);
      return;
    }
    if (name == "mathbb" || name == "Bbb") {
      skip_spaces();
      const bool is_group = at_ < text_.size() && text_[at_] == '{';
      const std::size_t letter = at_ + (is_group ? 1 : 0);
      constexpr std::string_view kLetters = "RZNQC";
      constexpr std::string_view kNames[] = {"\\reals ", "\\integers ", "\\naturals ",
                                             "\\rationals ", "\\complexes "};
      const std::size_t found =
          letter < text_.size() ? kLetters.find(text_[letter]) : std::string_view::npos;
      if (found != std::string_view::npos) {
        at_ = std::min(letter + (is_group ? 2 : 1), text_.size());
        put(kNames[found], is_text);
        return;
      }
      argument(true, false, depth);
      return;
    }
    const auto known = latex_commands().find(name);
    if (known == latex_commands().end()) {
      put("\\", is_text);
      put(name, is_text);
      put(" ", is_text);
      if (name == "begin" || name == "end") environment(depth);
      return;
    }
    switch (known->second.use) {
      case Use::kDropped:
        if ((name == "left" || name == "right") && at_ < text_.size() && text_[at_] == '.') ++at_;
        return;
      case Use::kSpace:
        if (!joins_thousands()) put(" ", is_text);
        return;
      case Use::kArgument:
        return argument(false, is_text, depth);
      case Use::kInside:
        return argument(true, is_text, depth);
      case Use::kText:
        return argument(true, true, depth);
      case Use::kStandsFor2:
        argument(false, is_text, depth);
        return argument(true, is_text, depth);
      case Use::kStands:
        put(known->second.text, is_text);
        return;
    }
  }

  /// The name of an environment as it is, without the columns of an array.
  void environment(int depth) {
    skip_spaces();
    const std::size_t end = std::min(text_.find('}', at_), text_.size());
    const std::string_view name = text_.substr(at_, end - at_);
    put(name, false);
    put("}", false);
    at_ = std::min(end + 1, text_.size());
    if (name == "{array" && out_.text.ends_with("\\begin {array}") && at_ < text_.size() &&
        text_[at_] == '{') {
      argument(false, false, depth);
    }
  }

  void copy(std::size_t end, bool is_text, int depth) {
    while (at_ < std::min(end, text_.size())) {
      const char c = text_[at_];
      if (c == '\\') {
        command(is_text, depth);
      } else if (c == '$' || c == '~' || is_blank(c)) {
        ++at_;
        put(" ", is_text);
      } else if (c == '^') {
        ++at_;
        skip_spaces();
        if (is_degree_mark()) {
          put("\\degree ", is_text);
        } else {
          put("^", is_text);
        }
      } else if (text_.substr(at_).starts_with("{,}")) {
        at_ += 3;
        if (!joins_thousands()) put(",", is_text);
      } else if (text_.substr(at_).starts_with("**")) {
        at_ += 2;
        put("^", is_text);
      } else if (text_.substr(at_).starts_with("...")) {
        at_ += 3;
        put("\\ldots ", is_text);
      } else if (text_.substr(at_).starts_with("<=")) {
        at_ += 2;
        put("\\le ", is_text);
      } else if (text_.substr(at_).starts_with(">=")) {
        at_ += 2;
        put("\\ge ", is_text);
      } else if (text_.substr(at_).starts_with("!=") && at_ > 0 && text_[at_ - 1] == ' ') {
        at_ += 2;
        put("\\ne ", is_text);
      } else {
        put(text_.substr(at_, 1), is_text);
        ++at_;
      }
    }
  }

  const std::string_view text_;
  const bool has_rows_;
  std::size_t at_ = 0;
  PlainLatex out_;
};

/// Without `count` bytes at `begin`.
void erase(PlainLatex& plain, std::size_t begin, std::size_t count) {
  plain.text.erase(begin, count);
  const auto first = plain.is_text.begin() + static_cast<std::ptrdiff_t>(begin);
  plain.is_text.erase(first, first + static_cast<std::ptrdiff_t>(count));
}

void strip(PlainLatex& plain) {
  const auto is_end = [](std::string_view text) -> std::size_t {
    if (text.empty()) return 0;
    if (text.ends_with("\\\\ ")) return 3;
    if (is_blank(text.back()) || text.back() == ',' || text.back() == ';') {
      // The space after a command is its own.
      return 1;
    }
    if (text.back() == '.') return 1;
    return 0;
  };
  while (const std::size_t count = is_end(plain.text)) {
    if (plain.text.back() == ' ' && plain.text.size() > 1 &&
        is_letter(plain.text[plain.text.size() - 2])) {
      const std::size_t slash = plain.text.rfind('\\');
      if (slash != std::string::npos &&
          std::all_of(plain.text.begin() + static_cast<std::ptrdiff_t>(slash) + 1,
                      plain.text.end() - 1, is_letter)) {
        break;
      }
    }
    erase(plain, plain.text.size() - count, count);
  }
  std::size_t begin = 0;
  while (begin < plain.text.size() && is_blank(plain.text[begin])) ++begin;
  erase(plain, 0, begin);
}

/// Of each byte: whether it is a brace around something with an operator: the {n+1} of 2^{n+1}.
std::vector<bool> braces_that_bind(std::string_view text) {
  constexpr std::string_view kOperators = "+-*/=<>,^_&";
  struct Open {
    std::size_t at;
    bool binds;
  };
  std::vector<bool> out(text.size(), false);
  std::vector<Open> open;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '{') {
      std::size_t before = i;
      while (before > 0 && text[before - 1] == ' ') --before;
      std::size_t letter = before;
      while (letter > 0 && is_letter(text[letter - 1])) --letter;
      // The argument of a command is told from what follows it.
      const bool is_argument =
          before > 0 && (text[before - 1] == '}' || (letter > 0 && text[letter - 1] == '\\'));
      open.push_back({i, is_argument});
    } else if (text[i] == '}' && !open.empty()) {
      Open last = open.back();
      open.pop_back();
      const bool is_power = last.at > 0 && (text[last.at - 1] == '^' || text[last.at - 1] == '_');
      const bool goes_on = i + 1 < text.size() && is_digit(text[i + 1]);
      if (is_power && (i - last.at != 2 || goes_on)) last.binds = true;
      out[last.at] = out[i] = last.binds;
      if (last.binds && !open.empty()) open.back().binds = true;
    } else if (!open.empty() && kOperators.find(text[i]) != std::string_view::npos) {
      open.back().binds = true;
    }
  }
  return out;
}

}  // namespace

PlainLatex plain_latex(std::string_view answer) {
  answer = stripped(answer);
  // Bold of Markdown.
  while (answer.size() > 4 && answer.starts_with("**") && answer.ends_with("**"))
    answer = answer.substr(2, answer.size() - 4);
  const std::string ascii = without_unicode_signs(answer);
  PlainLatex plain = Plainer(ascii).run();
  strip(plain);
  return plain;
}

std::string text_form(const PlainLatex& plain) {
  const std::string& text = plain.text;
  const std::vector<bool> binds = braces_that_bind(text);
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    const char c = text[i];
    const bool is_brace = c == '{' || c == '}';
    if (is_blank(c) || (is_brace && !binds[i])) {
      const bool parts_digits = is_blank(c) && i > 0 && i + 1 < text.size() &&
                                is_digit(text[i - 1]) && is_digit(text[i + 1]);
      if (parts_digits) out += ' ';
      ++i;
      continue;
    }
    const bool is_command = c == '\\';
    std::size_t end = i + 1;
    if (is_command || is_letter(c)) {
      while (end < text.size() && is_letter(text[end])) ++end;
    }
    std::string word(text, i, end - i);
    if (!is_command && word.size() > 1) word = to_lower(word);
    i = end;
    if (word == "the" || word == "an") continue;
    const bool is_article = word == "a" && i < text.size() && text[i] == ' ' &&
                            i + 2 < text.size() && is_letter(text[i + 1]) && is_letter(text[i + 2]);
    if (is_article) continue;
    out += word;
  }
  constexpr std::pair<std::string_view, std::string_view> kSame[] = {{"dne", "doesnotexist"},
                                                                     {"nosolutions", "nosolution"}};
  for (const auto& [from, to] : kSame) {
    if (out == from) return std::string(to);
  }
  return out;
}

}  // namespace slime::reward
