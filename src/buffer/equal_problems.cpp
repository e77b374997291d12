#include "buffer/equal_problems.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <cstdint>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

namespace slime::buffer {
namespace {

struct Place {
  std::string before;  // "a.jsonl, line "
  int64_t number = 0;
  std::string behind;  // ": no field"
};

std::optional<Place> parsed_place(const std::string& problem) {
  for (const std::string_view word : {", line ", ", row "}) {
    const std::size_t at = problem.find(word);
    if (at == problem.npos) continue;
    const char* const begin = problem.data() + at + word.size();
    Place place{.before = problem.substr(0, at + word.size())};
    const auto [end, error] = std::from_chars(begin, problem.data() + problem.size(), place.number);
    if (error != std::errc() || !std::string_view(end).starts_with(": ")) continue;
    place.behind = end;
    return place;
  }
  return std::nullopt;
}

std::string in_words(const std::vector<int64_t>& numbers, std::string_view noun) {
  if (numbers.size() == 1) return fmt::format(" (and {} {})", noun, numbers[0]);
  const bool is_range =
      numbers.back() - numbers.front() + 1 == static_cast<int64_t>(numbers.size());
  return is_range ? fmt::format(" (and {}s {} to {})", noun, numbers.front(), numbers.back())
                  : fmt::format(" (and {}s {})", noun, fmt::join(numbers, ", "));
}

}  // namespace

std::vector<std::string> joined_problems(const std::vector<std::string>& problems) {
  std::vector<std::string> joined;
  std::map<std::pair<std::string, std::string>, std::size_t> first;  // where it stands in `joined`
  std::map<std::size_t, std::vector<int64_t>> others;
  for (const std::string& problem : problems) {
    const auto place = parsed_place(problem);
    if (!place) {
      joined.push_back(problem);
      continue;
    }
    const auto [known, is_new] = first.try_emplace({place->before, place->behind}, joined.size());
    if (is_new)
      joined.push_back(problem);
    else
      others[known->second].push_back(place->number);
  }
  for (const auto& [index, numbers] : others) {
    const bool has_lines = parsed_place(joined[index])->before.ends_with("line ");
    joined[index] += in_words(numbers, has_lines ? "line" : "row");
  }
  return joined;
}

}  // namespace slime::buffer
