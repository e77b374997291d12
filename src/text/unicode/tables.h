#pragma once

/// The rows of text/unicode/tables.txt, which the build turns into C++ (tools/build/unicode_source.py). Only
/// text/unicode/unicode.cpp and text/unicode/normalize.cpp read them.

#include <cstdint>
#include <span>

namespace slime::text {

/// All code points from `first` to the next run's have `properties` (layout: CodePointProperties in
/// text/unicode/unicode.h).
struct PropertyRun {
  char32_t first;
  uint16_t properties;
};
extern const std::span<const PropertyRun> kPropertyRuns;

/// Flat rows {from, count, to...}, ordered by `from`. Decompositions are complete, not single
/// steps; compatibility rows only where they differ from canonical ones; Hangul syllables are
/// computed.
extern const std::span<const char32_t> kCanonicalMappings;
extern const std::span<const char32_t> kCompatibilityMappings;
extern const std::span<const char32_t> kLowercaseMappings;

struct CombiningClass {
  char32_t code_point;
  uint8_t value;
};
extern const std::span<const CombiningClass> kCombiningClasses;

struct Composition {
  char32_t first, second, composed;
};
/// Ordered by (first, second).
extern const std::span<const Composition> kCompositions;

}  // namespace slime::text
