#include "reward/plain_latex.h"

#include <algorithm>
#include <map>
#include <optional>

#include "reward/latex_signs.h"
#include "reward/python_text.h"

namespace slime::reward {
namespace {

constexpr int kMostNested = 50;

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
  const std::string ascii = with_latex_signs(answer);
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
