#pragma once

/// The "normalizer" of tokenizer.json: rewrites text before it is cut into words. Nested sequences
/// arrive flattened.

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "text/tokenizer/pattern.h"
#include "text/unicode/normalize.h"

namespace slime::text {

struct Replace {
  Pattern pattern;
  std::string content;
};
struct Prepend {
  std::string content;
};
struct Lowercase {};
struct StripAccents {};  // removes combining marks
struct StripSpaces {
  bool left = true;
  bool right = true;
};
using NormalizerStep =
    std::variant<NormalForm, Replace, Prepend, Lowercase, StripAccents, StripSpaces>;

/// `text` is valid UTF-8. The result is either `text` itself or lies in `storage`.
std::string_view normalize(const std::vector<NormalizerStep>& steps, std::string_view text,
                           std::string& storage);

}  // namespace slime::text
