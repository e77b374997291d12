#pragma once

/// Programs in the folder of this one: slime-sandbox, slime-bench.

#include <span>
#include <string>

namespace slime::cli {

/// Path of the program `name` in this program's folder; it may not be there.
std::string sibling_path(const std::string& name);

/// The program slime becomes its sibling `name` with these arguments, in the same process. Returns
/// where there is none that can be run, and in a program of another name.
void become_sibling(const std::string& name, std::span<const std::string> arguments);

}  // namespace slime::cli
