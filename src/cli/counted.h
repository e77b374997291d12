#pragma once

/// A count with its noun: "1 note", "2 notes".

#include <fmt/format.h>

#include <string>
#include <string_view>

namespace slime::cli {

inline std::string counted(auto count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

}  // namespace slime::cli
