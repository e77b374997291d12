#pragma once

/// Answers as models and data sets write them, in the few commands that the answer parser reads.
///
/// "\dfrac{1}{2}\text{ cm}", "0.5 cm" and "$\mathrm{\frac12\,cm}$" are the same answer: wrappers, spacing,
/// fonts and sizes go, synonyms become one command, Unicode signs become commands.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace slime::reward {

struct PlainLatex {
  /// ASCII, but for letters that are no signs of mathematics. Commands end with a space.
  std::string text;
  /// Of each byte: whether it stood in \text{} or the like, where letters are words and units.
  std::vector<bool> is_text;
};

/// Linear in the length, and nests at most 50 deep: what lies deeper is dropped.
PlainLatex plain_latex(std::string_view answer);

/// The text without what does not distinguish answers in words: spaces (but between digits), braces
/// (but around more than one term), articles, case of words of two letters and more. "\text{The Ellipse.}" -> "ellipse".
std::string text_form(const PlainLatex& plain);

}  // namespace slime::reward
