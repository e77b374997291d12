#include "reward/latex_signs.h"

#include <map>

#include "reward/digits.h"
#include "reward/python_text.h"

namespace slime::reward {
namespace {

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

}  // namespace

std::string with_latex_signs(std::string_view text) {
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

}  // namespace slime::reward
