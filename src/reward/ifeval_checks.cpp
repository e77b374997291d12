// The classic checks, of IFEval: keywords, lengths, marks, case.

#include <algorithm>
#include <array>
#include <string>

#include "reward/ifbench_checks.h"
#include "reward/ifbench_text.h"
#include "reward/python_text.h"

namespace slime::reward {
namespace {

using namespace ifbench;

using View = std::string_view;
using Map = json::object;

bool existence(View text, const Map& map) {
  const std::string low = to_lower(text);
  return std::ranges::all_of(Arguments(map).texts("keywords"), [&](const std::string& keyword) {
    return contains(low, to_lower(keyword));
  });
}

bool frequency(View text, const Map& map) {
  const Arguments in(map);
  const auto count = static_cast<double>(count_of(to_lower(text), to_lower(in.text("keyword"))));
  return in.holds(count, static_cast<double>(in.integer("frequency")), "relation");
}

bool forbidden_words(View text, const Map& map) {
  const std::string low = to_lower(text);
  return std::ranges::none_of(Arguments(map).texts("forbidden_words"),
                              [&](const std::string& word) {
                                return !word.empty() && has_whole_word(low, to_lower(word));
                              });
}

bool letter_frequency(View text, const Map& map) {
  const Arguments in(map);
  const auto count = static_cast<double>(count_of(to_lower(text), to_lower(in.text("letter"))));
  return in.holds(count, static_cast<double>(in.integer("let_frequency")), "let_relation");
}

bool number_words(View text, const Map& map) {
  const Arguments in(map);
  return in.holds(static_cast<double>(word_runs(text).size()),
                  static_cast<double>(in.integer("num_words")), "relation");
}

bool number_placeholders(View text, const Map& map) {
  int64_t count = 0;
  for (std::size_t at = 0; (at = text.find('[', at)) != View::npos;) {
    const std::size_t end = text.find_first_of("]\n", at);
    if (end == View::npos) break;
    if (text[end] == ']') ++count;
    at = end + 1;
  }
  return count >= Arguments(map).integer("num_placeholders");
}

bool number_bullet_lists(View text, const Map& map) {
  const auto is_bullet = [](const std::string& line) {
    const View bare = text::python::stripped_left(line);
    return bare.starts_with('-') || (bare.starts_with('*') && bare.size() > 1 && bare[1] != '*');
  };
  const Words lines = lines_of(text);
  return std::ranges::count_if(lines, is_bullet) == Arguments(map).integer("num_bullets");
}

bool constrained_response(View text, const Map&) {
  return contains(text, "My answer is yes.") || contains(text, "My answer is no.") ||
         contains(text, "My answer is maybe.");
}

bool json_format(View text, const Map&) {
  View bare = stripped(text);
  for (const View fence : {"```json", "```Json", "```JSON", "```"}) {
    if (bare.starts_with(fence)) {
      bare.remove_prefix(fence.size());
      break;
    }
  }
  if (bare.ends_with("```")) bare.remove_suffix(3);
  json::error_code error;
  const json::value parsed = json::parse(stripped(bare), error);
  return !error;
}

bool title(View text, const Map&) {
  for (const std::string& line : lines_of(text)) {
    const std::size_t begin = line.find("<<"), end = line.rfind(">>");
    if (begin == std::string::npos || end == std::string::npos || end < begin + 2) continue;
    View inside = View(line).substr(begin + 2, end - begin - 2);
    while (inside.starts_with('<')) inside.remove_prefix(1);
    while (inside.ends_with('>')) inside.remove_suffix(1);
    if (!stripped(inside).empty()) return true;
  }
  return false;
}

bool end_checker(View text, const Map& map) {
  View bare = stripped(text);
  while (bare.ends_with('"')) bare.remove_suffix(1);
  return to_lower(bare).ends_with(to_lower(stripped(Arguments(map).text("end_phrase"))));
}

bool quotation(View text, const Map&) {
  const View bare = stripped(text);
  return bare.size() > 1 && bare.front() == '"' && bare.back() == '"';
}

bool capital_word_frequency(View text, const Map& map) {
  const Arguments in(map);
  const Words words = tokens_of(text);
  const auto count = std::ranges::count_if(words, is_all_upper);
  return in.holds(static_cast<double>(count), static_cast<double>(in.integer("capital_frequency")),
                  "capital_relation");
}

bool no_comma(View text, const Map&) { return text.find(',') == View::npos; }

bool repeat_prompt(View text, const Map& map) {
  return to_lower(stripped(text))
      .starts_with(to_lower(stripped(Arguments(map).text("prompt_to_repeat"))));
}

bool two_responses(View text, const Map&) {
  std::vector<View> parts = split(text, "******");
  for (View& part : parts) part = stripped(part);
  if (parts.front().empty()) parts.erase(parts.begin());
  if (!parts.empty() && parts.back().empty()) parts.pop_back();
  return parts.size() == 2 && !parts[0].empty() && !parts[1].empty() && parts[0] != parts[1];
}

constexpr std::array kClassicInstructions{
    Instruction{"keywords:existence", existence},
    Instruction{"keywords:frequency", frequency},
    Instruction{"keywords:forbidden_words", forbidden_words},
    Instruction{"keywords:letter_frequency", letter_frequency},
    Instruction{"length_constraints:number_words", number_words},
    Instruction{"detectable_content:number_placeholders", number_placeholders},
    Instruction{"detectable_format:number_bullet_lists", number_bullet_lists},
    Instruction{"detectable_format:constrained_response", constrained_response},
    Instruction{"detectable_format:json_format", json_format},
    Instruction{"detectable_format:title", title},
    Instruction{"startend:end_checker", end_checker},
    Instruction{"startend:quotation", quotation},
    Instruction{"change_case:capital_word_frequency", capital_word_frequency},
    Instruction{"punctuation:no_comma", no_comma},
    Instruction{"combination:repeat_prompt", repeat_prompt},
    Instruction{"combination:two_responses", two_responses},
};

}  // namespace

std::span<const Instruction> classic_instructions() { return kClassicInstructions; }

}  // namespace slime::reward
