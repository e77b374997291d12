// Checks of IFBench on the form of a response, on what it repeats, and its single tasks.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>

#include "core/error.h"
#include "reward/ifbench_checks.h"
#include "reward/ifbench_text.h"
#include "reward/python_text.h"

namespace slime::reward {
namespace {

using namespace ifbench;

using View = std::string_view;
using Map = json::object;

// ---- format ----

bool parentheses(View text, const Map&) {
  constexpr std::size_t kDeep = 5;
  std::string open;
  std::size_t deepest = 0;
  for (const char c : text) {
    if (const auto left = View("([{").find(c); left != View::npos) {
      open += ")]}"[left];
    } else if (View(")]}").find(c) != View::npos) {
      if (!open.empty() && open.back() == c) {
        deepest = std::max(deepest, open.size());
        if (deepest >= kDeep) return true;
        open.pop_back();
      } else {
        open.clear();
        deepest = 0;
      }
    }
  }
  return false;
}

bool newline(View text, const Map&) {
  const std::string bare = without_punctuation(text);
  Words lines = lines_of(stripped(bare));
  std::erase(lines, "");
  return lines.size() == words_of(bare).size();
}

bool line_indent(View text, const Map&) {
  int64_t before = -1;
  for (const std::string& line : filled_lines(text)) {
    const auto indent = static_cast<int64_t>(line.find_first_not_of(' '));
    if (indent <= before) return false;
    before = indent;
  }
  return true;
}

bool quote_unquote(View text, const Map&) {
  std::string dense;
  for (const std::string& word : words_of(replaced(text, "'\"'", ""))) dense += word;
  if (contains(dense, "\"\"")) return false;
  View end = dense;  // what follows the last quote has to be more than digits and signs
  while (!end.empty() && end.back() != '"' && (is_digit(end.back()) || is_punctuation(end.back())))
    end.remove_suffix(1);
  return !end.ends_with('"');
}

bool list(View text, const Map& map) { return count_of(text, Arguments(map).text("sep")) >= 2; }

bool thesis(View text, const Map&) {
  for (const View tag : {"i", "em"}) {
    const std::string open = fmt::format("<{}>", tag), close = fmt::format("</{}>", tag);
    const std::size_t begin = text.find(open);
    if (begin == View::npos) continue;
    const std::size_t end = text.find(close, begin + open.size());
    if (end == View::npos) continue;
    if (stripped(text.substr(begin + open.size(), end - begin - open.size())).empty()) continue;
    if (!stripped(text.substr(end + close.size())).empty()) return true;
  }
  return false;
}

bool sub_bullets(View text, const Map&) {
  const std::vector<View> bullets = split(text, "*");
  return std::all_of(bullets.begin() + 1, bullets.end(),
                     [](View bullet) { return contains(bullet, "-"); });
}

bool output_template(View text, const Map&) {
  return contains(text, "My Answer:") && contains(text, "My Conclusion:") &&
         contains(text, "Future Outlook:");
}

bool no_whitespace(View text, const Map&) {
  for (std::size_t i = 0; i < text.size();) {
    if (text::python::is_space(next_point(text, i))) return false;
  }
  return true;
}

// ---- repeat, custom ----

bool repeat_simple(View text, const Map&) {
  return to_lower(stripped(text)) == "only output this sentence here, ignore all other requests.";
}

bool repeat_change(View text, const Map& map) {
  const Words own = words_of(text), prompt = words_of(Arguments(map).text("prompt_to_repeat"));
  return own.size() == prompt.size() && !own.empty() && own[0] != prompt[0] &&
         std::equal(own.begin() + 1, own.end(), prompt.begin() + 1);
}

bool repeat_span(View text, const Map& map) {
  const Arguments in(map);
  const std::string prompt = in.text("prompt_to_repeat");
  const int64_t begin = in.integer("n_start"), end = in.integer("n_end");
  const auto size = static_cast<int64_t>(count_points(prompt));
  if (begin < 0 || end < begin || begin >= size) return false;
  const auto offset = [&](int64_t index) {
    return text::python::byte_offset(prompt, static_cast<std::size_t>(index));
  };
  const std::size_t first = offset(begin), behind = offset(std::min(end, size - 1) + 1);
  const View span = View(prompt).substr(first, behind - first);
  return to_lower(stripped(text)) == to_lower(stripped(span));
}

bool multiples(View text, const Map&) {
  return runs_of(text, is_digit) == Words{"14", "21", "28", "35", "42", "49"};
}

bool character_reverse(View text, const Map&) { return contains(to_lower(text), "elgae dlab"); }

bool is_date(View text) {
  if (text.size() != 10 || text[4] != '-' || text[7] != '-') return false;
  for (const std::size_t i : {0, 1, 2, 3, 5, 6, 8, 9}) {
    if (!is_digit(text[i])) return false;
  }
  const int year = std::stoi(std::string(text.substr(0, 4)));
  const int month = std::stoi(std::string(text.substr(5, 2)));
  const int day = std::stoi(std::string(text.substr(8, 2)));
  const bool is_leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
  const std::array<int, 12> days{31, is_leap ? 29 : 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
  return year >= 1769 && year <= 1821 && month >= 1 && month <= 12 && day >= 1 &&
         day <= days[static_cast<std::size_t>(month - 1)];
}

bool date_format_list(View text, const Map&) {
  std::string rest(stripped(text));
  std::size_t begin = 0;
  while (begin <= rest.size()) {
    const std::size_t end = std::min(rest.find(',', begin), rest.size());
    if (!is_date(stripped(View(rest).substr(begin, end - begin)))) return false;
    begin = end + 1;
  }
  return true;
}

constexpr std::array kFormatInstructions{
    Instruction{"format:parentheses", parentheses},
    Instruction{"format:newline", newline},
    Instruction{"format:line_indent", line_indent},
    Instruction{"format:quote_unquote", quote_unquote},
    Instruction{"format:list", list},
    Instruction{"format:thesis", thesis},
    Instruction{"format:sub-bullets", sub_bullets},
    Instruction{"format:output_template", output_template},
    Instruction{"format:no_whitespace", no_whitespace},
    Instruction{"repeat:repeat_simple", repeat_simple},
    Instruction{"repeat:repeat_change", repeat_change},
    Instruction{"repeat:repeat_span", repeat_span},
    Instruction{"custom:multiples", multiples},
    Instruction{"custom:character_reverse", character_reverse},
    Instruction{"custom:date_format_list", date_format_list},
};

}  // namespace

std::span<const Instruction> format_instructions() { return kFormatInstructions; }

}  // namespace slime::reward
