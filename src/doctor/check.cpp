#include "doctor/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace slime::doctor {

std::string_view word_of(State state) {
  switch (state) {
    case State::kOk:
      return "ok";
    case State::kNote:
      return "note";
    case State::kProblem:
      return "problem";
  }
  return "";
}

bool has_problem(const Checks& checks) {
  return std::ranges::any_of(checks,
                             [](const Check& check) { return check.state == State::kProblem; });
}

json::array to_json(const Checks& checks) {
  json::array list;
  for (const Check& check : checks)
    list.push_back(json::object{{"area", check.area},
                                {"state", word_of(check.state)},
                                {"what", check.what},
                                {"cure", check.cure}});
  return list;
}

std::string in_bytes(double bytes) {
  static constexpr std::array kUnits{"bytes", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  while (bytes >= 1024 && unit + 1 < kUnits.size()) {
    bytes /= 1024;
    ++unit;
  }
  return fmt::format("{:.{}f} {}", bytes, unit == 0 || bytes >= 100 ? 0 : 1, kUnits[unit]);
}

}  // namespace slime::doctor
