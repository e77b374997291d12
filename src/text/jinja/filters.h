#pragma once

/// The built-in filters and tests of Jinja2, and tojson as chat templates know it.

#include <string_view>

#include "text/jinja/value.h"

namespace slime::text::jinja {

class Interpreter;

/// input | name(arguments)
using FilterFn = Value (*)(Interpreter&, const Value& input, Arguments arguments);
/// input is name(arguments)
using TestFn = bool (*)(Interpreter&, const Value& input, Arguments arguments);

/// Null where there is no such filter or test.
FilterFn find_filter(std::string_view name);
TestFn find_test(std::string_view name);

// The two halves of find_filter: on texts and numbers, and on sequences.
FilterFn find_text_filter(std::string_view name);
FilterFn find_sequence_filter(std::string_view name);

}  // namespace slime::text::jinja
