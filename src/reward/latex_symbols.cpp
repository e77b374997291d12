#include "reward/latex_symbols.h"

#include <unordered_map>

namespace slime::reward {
namespace {

const std::unordered_map<std::string_view, std::string_view> kSymbols{
    // clang-format off
    // Greek
    {"alpha", "\u03b1"}, {"beta", "\u03b2"}, {"gamma", "\u03b3"}, {"delta", "\u03b4"},
    {"epsilon", "\u03f5"}, {"varepsilon", "\u03b5"}, {"zeta", "\u03b6"}, {"eta", "\u03b7"},
    {"theta", "\u03b8"}, {"vartheta", "\u03d1"}, {"iota", "\u03b9"}, {"kappa", "\u03ba"},
    {"lambda", "\u03bb"}, {"mu", "\u03bc"}, {"nu", "\u03bd"}, {"xi", "\u03be"}, {"pi", "\u03c0"},
    {"varpi", "\u03d6"}, {"rho", "\u03c1"}, {"varrho", "\u03f1"}, {"sigma", "\u03c3"},
    {"varsigma", "\u03c2"}, {"tau", "\u03c4"}, {"upsilon", "\u03c5"}, {"phi", "\u03d5"},
    {"varphi", "\u03c6"}, {"chi", "\u03c7"}, {"psi", "\u03c8"}, {"omega", "\u03c9"},
    {"Gamma", "\u0393"}, {"Delta", "\u0394"}, {"Theta", "\u0398"}, {"Lambda", "\u039b"},
    {"Xi", "\u039e"}, {"Pi", "\u03a0"}, {"Sigma", "\u03a3"}, {"Upsilon", "\u03a5"},
    {"Phi", "\u03a6"}, {"Psi", "\u03a8"}, {"Omega", "\u03a9"},
    // Numbers and operators
    {"infty", "\u221e"}, {"cdot", "\u00b7"}, {"times", "\u00d7"}, {"div", "\u00f7"},
    {"pm", "\u00b1"}, {"mp", "\u2213"}, {"circ", "\u2218"}, {"oplus", "\u2295"},
    {"otimes", "\u2297"}, {"ast", "\u2217"}, {"star", "\u22c6"}, {"bullet", "\u2219"},
    {"wedge", "\u2227"}, {"vee", "\u2228"}, {"sqcup", "\u2294"}, {"partial", "\u2202"},
    {"nabla", "\u2207"}, {"sum", "\u2211"}, {"prod", "\u220f"}, {"int", "\u222b"},
    {"oint", "\u222e"}, {"iint", "\u222c"}, {"prime", "'"},
    // Sets and logic
    {"in", "\u2208"}, {"notin", "\u2209"}, {"ni", "\u220b"}, {"cup", "\u222a"}, {"cap", "\u2229"},
    {"subset", "\u2282"}, {"supset", "\u2283"}, {"subseteq", "\u2286"}, {"supseteq", "\u2287"},
    {"subsetneq", "\u228a"}, {"setminus", "\u2216"}, {"emptyset", "\u2205"},
    {"varnothing", "\u2205"}, {"forall", "\u2200"}, {"exists", "\u2203"}, {"nexists", "\u2204"},
    {"top", "\u22a4"}, {"vdash", "\u22a2"}, {"therefore", "\u2234"}, {"because", "\u2235"},
    // Relations
    {"le", "\u2264"}, {"leq", "\u2264"}, {"ge", "\u2265"}, {"geq", "\u2265"}, {"neq", "\u2260"},
    {"leqslant", "\u2a7d"}, {"geqslant", "\u2a7e"}, {"ll", "\u226a"}, {"gg", "\u226b"},
    {"approx", "\u2248"}, {"sim", "\u223c"}, {"simeq", "\u2243"}, {"cong", "\u2245"},
    {"equiv", "\u2261"}, {"propto", "\u221d"}, {"perp", "\u22a5"}, {"parallel", "\u2225"},
    {"mid", "|"},
    // Arrows
    {"to", "\u2192"}, {"rightarrow", "\u2192"}, {"leftarrow", "\u2190"},
    {"leftrightarrow", "\u2194"}, {"Rightarrow", "\u21d2"}, {"Leftarrow", "\u21d0"},
    {"Leftrightarrow", "\u21d4"}, {"longrightarrow", "\u27f6"}, {"mapsto", "\u21a6"},
    {"uparrow", "\u2191"}, {"downarrow", "\u2193"},
    // Delimiters and signs
    {"lfloor", "\u230a"}, {"rfloor", "\u230b"}, {"lceil", "\u2308"}, {"rceil", "\u2309"},
    {"langle", "\u27e8"}, {"rangle", "\u27e9"}, {"vert", "|"}, {"Vert", "\u2016"}, {"lvert", "|"},
    {"rvert", "|"}, {"lVert", "\u2016"}, {"rVert", "\u2016"}, {"lbrace", "{"}, {"rbrace", "}"},
    {"backslash", "\\"}, {"ldots", "\u2026"}, {"dots", "\u2026"}, {"cdots", "\u22ef"},
    {"vdots", "\u22ee"}, {"ddots", "\u22f1"}, {"angle", "\u2220"}, {"square", "\u25a1"},
    {"ell", "\u2113"}, {"hbar", "\u0127"}, {"dagger", "\u2020"}, {"aleph", "\u2135"},
    {"textdegree", "\u00b0"}, {"quad", "  "}, {"qquad", "    "},
    // Functions keep their letters
    {"sin", "sin"}, {"cos", "cos"}, {"tan", "tan"}, {"sinh", "sinh"}, {"cosh", "cosh"},
    {"tanh", "tanh"}, {"log", "log"}, {"ln", "ln"}, {"exp", "exp"}, {"lim", "lim"},
    {"max", "max"}, {"min", "min"}, {"sup", "sup"}, {"inf", "inf"}, {"arcsin", "arcsin"},
    {"arccos", "arccos"}, {"arctan", "arctan"},
    // clang-format on
};

}  // namespace

std::optional<std::string_view> latex_symbol(std::string_view name) {
  const auto found = kSymbols.find(name);
  if (found == kSymbols.end()) return std::nullopt;
  return found->second;
}

}  // namespace slime::reward
