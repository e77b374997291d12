#pragma once

/// YAML files as JSON values: the one form in which configuration travels on.

#include <string>

#include "core/json.h"

namespace slime::config {

/// Maps, lists and scalars; plain scalars become null, true, false, numbers or strings by the core
/// schema, quoted ones are strings. Throws ConfigError that starts with `key` and the path
/// ("--eval-config x.yaml: ...") for a file that cannot be read, is no YAML, nests deeper than 64
/// or has more than a million nodes once its aliases are expanded.
json::value read_yaml_file(const std::string& path, const std::string& key);

/// The same of a text; `where` starts messages.
json::value parse_yaml(const std::string& text, const std::string& where);

}  // namespace slime::config
