#pragma once

/// Python's three ways to put values into text: "%s" % x, "{}".format(x) and the small language of
/// widths behind both.

#include <string>
#include <string_view>

#include "text/jinja/budget.h"
#include "text/jinja/value.h"

namespace slime::text::jinja {

/// format % values; a tuple holds several values, a dictionary serves %(name)s.
std::string percent_format(std::string_view format, const Value& values, Budget& budget);

/// format.format(*positional, **named): {}, {0}, {name}, {0.field}, {0[key]}, !r, !s and format
/// specifications.
std::string brace_format(std::string_view format, const Arguments& arguments, Budget& budget);

/// format(value, spec): [[fill]align][sign][#][0][width][,][.precision][type].
std::string format_value(const Value& value, std::string_view spec, Budget& budget);

}  // namespace slime::text::jinja
