#include "reward/ifbench_checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <set>
#include <span>
#include <string>
#include <unordered_map>

#include "core/error.h"
#include "reward/ifbench_text.h"
#include "reward/python_text.h"

namespace slime::reward {
namespace {

using namespace ifbench;

using View = std::string_view;
using Map = json::object;

// ---- count ----

bool word_count_range(View text, const Map& map) {
  const Arguments in(map);
  const auto count = static_cast<int64_t>(word_runs(text).size());
  return in.integer("min_words") <= count && count <= in.integer("max_words");
}

bool unique_word_count(View text, const Map& map) {
  std::set<std::string> words;
  for (const std::string& word : words_of(to_lower(text))) words.emplace(strip_punctuation(word));
  return static_cast<int64_t>(words.size()) >= Arguments(map).integer("N");
}

bool conjunctions(View text, const Map& map) {
  static const std::set<std::string> kConjunctions{"and", "but", "for", "nor", "or", "so", "yet"};
  std::set<std::string> found;  // spellings: "And" is not "and,"
  for (const std::string& word : words_of(text)) {
    if (kConjunctions.contains(to_lower(strip_punctuation(word)))) found.insert(word);
  }
  return static_cast<int64_t>(found.size()) >= Arguments(map).integer("small_n");
}

bool numbers(View text, const Map& map) {
  return static_cast<int64_t>(runs_of(without_punctuation(text), is_digit).size()) ==
         Arguments(map).integer("N");
}

bool punctuation(View text, const Map&) {
  std::string rest(text);
  bool has_mixed = contains(text, "\xe2\x80\xbd");  // the interrobang
  for (const View mark : {"?!", "!?"}) {
    if (const std::size_t at = rest.find(mark); at != std::string::npos) {
      rest.erase(at, mark.size());
      has_mixed = true;
      break;
    }
  }
  return has_mixed && std::ranges::all_of(View(".,!?;:"), [&](char mark) {
           return rest.find(mark) != std::string::npos;
         });
}

bool words_japanese(View text, const Map& map) {
  const int64_t every = Arguments(map).integer("N");
  if (every < 1) throw ConfigError("N should be at least 1");
  int64_t index = 0;
  for (const std::string& word : words_of(text)) {
    if (++index % every != 0) continue;
    const View bare = strip_punctuation(word);
    if (bare.empty() || std::ranges::all_of(bare, is_digit)) continue;
    bool is_japanese = false;
    for (std::size_t i = 0; i + 2 < bare.size(); ++i) {
      const auto byte = [&](std::size_t k) { return static_cast<unsigned char>(bare[k]); };
      if (byte(i) < 0xE0 || byte(i) > 0xEF) continue;
      const int point = (byte(i) & 0xF) << 12 | (byte(i + 1) & 0x3F) << 6 | (byte(i + 2) & 0x3F);
      is_japanese |= (point >= 0x3040 && point <= 0x30FF) || (point >= 0x4E00 && point <= 0x9FFF);
    }
    if (!is_japanese) return false;
  }
  return true;
}

bool keywords_multiple(View text, const Map& map) {
  const Arguments in(map);
  const std::string low = to_lower(text);
  constexpr std::array<int64_t, 5> kCounts{1, 2, 3, 5, 7};
  for (std::size_t i = 0; i < kCounts.size(); ++i) {
    const std::string keyword = in.text(fmt::format("keyword{}", i + 1));
    if (count_of(low, to_lower(stripped(keyword))) != kCounts[i]) return false;
  }
  return true;
}

// ---- ratio, words ----

std::set<std::string> trigrams(View text) {
  std::set<std::string> grams;
  const std::vector<View> points = text::python::split_points(text);
  for (std::size_t i = 0; i + 3 <= points.size(); ++i)
    grams.emplace(points[i].data(), points[i + 2].data() + points[i + 2].size());
  return grams;
}

bool overlap(View text, const Map& map) {
  const Arguments in(map);
  const std::set<std::string> own = trigrams(text), reference = trigrams(in.text("reference_text"));
  if (own.empty()) return false;
  const auto shared =
      std::ranges::count_if(own, [&](const std::string& gram) { return reference.contains(gram); });
  const double percentage = 100.0 * static_cast<double>(shared) / static_cast<double>(own.size());
  return std::abs(percentage - in.number("percentage")) <= 2;
}

bool alphabet(View text, const Map&) {
  const Words words = words_of(without_punctuation(to_lower(text)));
  if (words.empty() || std::isalpha(static_cast<unsigned char>(words[0][0])) == 0) return false;
  for (std::size_t i = 1; i < words.size(); ++i) {
    const char before = words[i - 1][0];
    if (words[i][0] != (before == 'z' ? 'a' : static_cast<char>(before + 1))) return false;
  }
  return true;
}

bool vowel(View text, const Map&) {
  if (lines_of(stripped(text)).size() != 1) return false;
  std::set<char> vowels;
  for (const char c : to_lower(text)) {
    if (View("aeiou").find(c) != View::npos) vowels.insert(c);
  }
  return vowels.size() <= 3;
}

bool consonants(View text, const Map&) {
  const auto is_consonant = [](char c) {
    return std::isalpha(static_cast<unsigned char>(c)) != 0 && View("aeiou").find(c) == View::npos;
  };
  return std::ranges::all_of(words_of(to_lower(text)), [&](const std::string& word) {
    for (std::size_t i = 0; i + 1 < word.size(); ++i) {
      if (is_consonant(word[i]) && is_consonant(word[i + 1])) return true;
    }
    return false;
  });
}

bool palindrome(View text, const Map&) {
  const Words words = words_of(without_punctuation(to_lower(text)));
  return std::ranges::count_if(words, [](const std::string& word) {
           const std::vector<View> points = text::python::split_points(word);
           return points.size() >= 5 && std::equal(points.begin(), points.end(), points.rbegin());
         }) >= 10;
}

bool prime_lengths(View text, const Map&) {
  const auto is_prime = [](std::size_t n) {
    if (n < 2 || n >= 100) return false;
    for (std::size_t d = 2; d * d <= n; ++d) {
      if (n % d == 0) return false;
    }
    return true;
  };
  return std::ranges::all_of(words_of(without_punctuation(text)),
                             [&](const std::string& word) { return is_prime(count_points(word)); });
}

bool repeats(View text, const Map& map) {
  const int64_t most = Arguments(map).integer("small_n");
  std::unordered_map<std::string, int64_t> counts;
  for (const std::string& word : words_of(without_punctuation(to_lower(text)))) {
    if (++counts[word] > most) return false;
  }
  return true;
}

bool paragraph_last_first(View text, const Map&) {
  return std::ranges::all_of(lines_of(text), [](const std::string& line) {
    const Words words = words_of(to_lower(strip_punctuation(stripped(line))));
    return words.empty() || words.front() == words.back();
  });
}

bool no_consecutive(View text, const Map&) {
  const Words words = words_of(without_punctuation(text));
  for (std::size_t i = 1; i < words.size(); ++i) {
    if (first_character(words[i]) == first_character(words[i - 1])) return false;
  }
  return true;
}

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

// ---- the classic checks of IFEval ----

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

constexpr std::array kInstructions{
    Instruction{"count:word_count_range", word_count_range},
    Instruction{"count:unique_word_count", unique_word_count},
    Instruction{"count:conjunctions", conjunctions},
    Instruction{"count:numbers", numbers},
    Instruction{"count:punctuation", punctuation},
    Instruction{"count:words_japanese", words_japanese},
    Instruction{"count:keywords_multiple", keywords_multiple},
    Instruction{"ratio:overlap", overlap},
    Instruction{"words:alphabet", alphabet},
    Instruction{"words:vowel", vowel},
    Instruction{"words:consonants", consonants},
    Instruction{"words:palindrome", palindrome},
    Instruction{"words:prime_lengths", prime_lengths},
    Instruction{"words:repeats", repeats},
    Instruction{"words:paragraph_last_first", paragraph_last_first},
    Instruction{"words:no_consecutive", no_consecutive},
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

constexpr auto kMissing = std::to_array<std::pair<View, View>>({
    {"words:start_verb", "a part-of-speech tagger (a trained model)"},
    {"words:odd_even_syllables", "a dictionary of syllables"},
    {"language:response_language", "a language detector"},
    {"change_case:english_capital", "a language detector"},
    {"change_case:english_lowercase", "a language detector"},
});

}  // namespace

InstructionCheck find_instruction(View id) {
  for (const std::span<const Instruction> rows :
       {std::span<const Instruction>(kInstructions), sentence_instructions(),
        document_instructions()}) {
    const auto found = std::ranges::find(rows, id, &Instruction::id);
    if (found != rows.end()) return found->check;
  }
  return nullptr;
}

View missing_resource(View id) {
  const auto* found = std::ranges::find(kMissing, id, &std::pair<View, View>::first);
  return found == kMissing.end() ? View() : found->second;
}

}  // namespace slime::reward
