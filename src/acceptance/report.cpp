#include "acceptance/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <sstream>
#include <string_view>

namespace slime::acceptance {
namespace {

std::string number_text(double value) {
  const bool is_whole = std::abs(value) < 1e9 && value == std::floor(value);
  return is_whole ? fmt::format("{:.0f}", value) : fmt::format("{:.2e}", value);
}

std::string row_of(const Figure& figure) {
  switch (figure.kind) {
    case Figure::Kind::kTold:
      return fmt::format("| {} | {} | | |\n", cell(figure.what), cell(figure.text));
    case Figure::Kind::kProblem:
      return fmt::format("| {} | {} | | **differs** |\n", cell(figure.what), cell(figure.text));
    case Figure::Kind::kCompared:
      break;
  }
  return fmt::format("| {} | {} | {} | {} |\n", cell(figure.what), number_text(figure.value),
                     number_text(figure.most), differs(figure) ? "**differs**" : "ok");
}

constexpr std::string_view kHeadOfTable =
    "| figure | value | at most | |\n| --- | --- | --- | --- |\n";

}  // namespace

std::string cell(const std::string& text) {
  std::istringstream words(text);
  std::string out;
  for (std::string word; words >> word;) {
    std::ranges::replace(word, '|', '/');
    // "/home/ada/model:" is nobody's business.
    const std::size_t begin = word.find('/');
    if (begin != word.npos && begin + 1 < word.size() &&
        (begin == 0 || std::string_view("(\"'=:[").find(word[begin - 1]) != word.npos))
      word.erase(begin, word.find_last_of('/') + 1 - begin);
    out += (out.empty() ? "" : " ") + word;
  }
  return out;
}

std::string summary_of(const std::vector<Figure>& figures) {
  const auto compared = std::ranges::count_if(
      figures, [](const Figure& figure) { return figure.kind != Figure::Kind::kTold; });
  const auto wrong = std::ranges::count_if(figures, differs);
  const std::string count = fmt::format("{} figure{}", compared, compared == 1 ? "" : "s");
  return wrong == 0 ? count + ", none differs"
                    : fmt::format("{}, {} differ{}", count, wrong, wrong == 1 ? "s" : "");
}

std::string report_text(const ReportHead& head, const std::vector<Figure>& figures) {
  std::string text = fmt::format(
      "# slime check --device {}{}\n\nslime {}, {}, {:.1f} minutes: {}.\n", head.device,
      head.is_quick ? " --quick" : "", head.version, head.date, head.minutes, summary_of(figures));
  if (has_difference(figures)) {
    text += "\n## What differs\n\n";
    text += kHeadOfTable;
    for (const Figure& figure : figures)
      if (differs(figure)) text += row_of(figure);
  }
  std::vector<std::string> sections;
  for (const Figure& figure : figures)
    if (std::ranges::find(sections, figure.section) == sections.end())
      sections.push_back(figure.section);
  for (const std::string& section : sections) {
    text += fmt::format("\n## {}\n\n{}", section, kHeadOfTable);
    for (const Figure& figure : figures)
      if (figure.section == section) text += row_of(figure);
  }
  return text;
}

}  // namespace slime::acceptance
