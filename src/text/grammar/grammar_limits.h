#pragma once

/// Limits on the sources of grammars. Compiling cannot be interrupted, so what would take long is refused
/// before it begins.

#include <cstddef>
#include <cstdint>

namespace slime::text {

struct GrammarLimits {
  std::size_t source_bytes = std::size_t{256} << 10;
  /// Of an expression, of an EBNF, of all values of enums together. Beyond some 100,000 characters of
  /// alternatives compiling takes minutes.
  std::size_t text_bytes = std::size_t{64} << 10;
  int schema_depth = 64;        // of schemas in schemas; time grows with its cube
  int num_schemas = 20000;      // in one source
  int num_properties = 1000;    // of all objects together
  int num_values = 5000;        // of all enums together
  int64_t repetition = 100000;  // counted: the product of counts in counts
  int num_rules = 1000;         // of an EBNF
};

}  // namespace slime::text
