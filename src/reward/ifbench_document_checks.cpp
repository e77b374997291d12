// Checks of IFBench and IFEval that look at the form of a whole response: tables, questions,
// sections, nested quotes.

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>
#include <string>

#include "core/error.h"
#include "reward/ifbench_checks.h"
#include "reward/ifbench_text.h"
#include "reward/python_text.h"
#include "text/unicode/normalize.h"
#include "text/unicode/unicode.h"

namespace slime::reward {
namespace {

using namespace ifbench;

using View = std::string_view;
using Map = json::object;

// ---- tables ----

/// The records of comma-separated values, quoted as spreadsheets do. An empty line is a record
/// without fields.
std::vector<Words> read_csv(View text, char delimiter) {
  std::vector<Words> rows;
  Words row;
  std::string field;
  bool is_quoted = false;
  bool has_begun = false;  // the field has a character, or a quote has opened it
  const auto end_field = [&] {
    row.push_back(std::move(field));
    field.clear();
    has_begun = false;
  };
  const auto end_row = [&] {
    if (has_begun || !row.empty()) end_field();
    rows.push_back(std::move(row));
    row.clear();
  };
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (is_quoted) {
      if (c != '"') {
        field += c;
      } else if (i + 1 < text.size() && text[i + 1] == '"') {
        field += c;
        ++i;
      } else {
        is_quoted = false;
      }
    } else if (c == '"' && !has_begun) {
      is_quoted = has_begun = true;
    } else if (c == delimiter) {
      end_field();
    } else if (c == '\n' || c == '\r') {
      if (c == '\r' && i + 1 < text.size() && text[i + 1] == '\n') ++i;
      end_row();
    } else {
      field += c;
      has_begun = true;
    }
  }
  if (has_begun || !row.empty()) end_row();
  return rows;
}

/// The first line is these columns, each perhaps in quotes, with blanks after the delimiter.
bool has_header(View text, std::initializer_list<View> columns, char delimiter, View blanks) {
  View line = stripped(text.substr(0, text.find('\n')));
  bool is_first = true;
  for (const View column : columns) {
    if (!is_first) {
      if (!line.starts_with(delimiter)) return false;
      line.remove_prefix(1);
      line.remove_prefix(std::min(line.find_first_not_of(blanks), line.size()));
    }
    is_first = false;
    const std::string quoted = '"' + std::string(column) + '"';
    const View found = line.starts_with(quoted) ? View(quoted) : column;
    if (!line.starts_with(found)) return false;
    line.remove_prefix(found.size());
  }
  return line.empty();
}

bool have_five_fields(const std::vector<Words>& rows) {
  return std::ranges::all_of(rows, [](const Words& row) { return row.size() == 5; });
}

/// Quotes stay part of the fields.
std::vector<Words> read_csv_with_quotes(View text, char delimiter) {
  return read_csv(replaced(text, "\"", "\"\"\""), delimiter);
}

bool csv_city(View text, const Map&) {
  const std::vector<Words> rows = read_csv(text, ',');
  return rows.size() == 8 && rows[0] == Words{"ID", "Country", "City", "Year", "Count"} &&
         have_five_fields(rows);
}

/// A field in quotes with a character inside that is neither word nor blank.
bool is_special(View field) {
  if (!field.starts_with('"')) return false;
  field = field.substr(0, field.find('\n'));
  const std::size_t last = field.rfind('"');
  const View inside = field.substr(1, last == 0 ? 0 : last - 1);
  for (std::size_t i = 0; i < inside.size();) {
    const char32_t point = next_point(inside, i);
    if (!text::python::is_word_point(point) && !text::python::is_space(point)) return true;
  }
  return false;
}

bool csv_special_character(View text, const Map&) {
  if (!has_header(text, {"ProductID", "Category", "Brand", "Price", "Stock"}, ',', " \t"))
    return false;
  const std::vector<Words> rows = read_csv_with_quotes(text, ',');
  if (rows.size() != 15) return false;
  for (std::size_t i = 1; i < rows.size(); ++i) {
    if (rows[i].size() != 5) return false;
    if (std::ranges::any_of(rows[i], is_special)) return true;
  }
  return false;
}

bool csv_quotes(View text, const Map&) {
  if (!has_header(text, {"StudentID", "Subject", "Grade", "Semester", "Score"}, '\t', " "))
    return false;
  const std::vector<Words> rows = read_csv_with_quotes(text, '\t');
  return rows.size() == 4 && have_five_fields(rows) &&
         std::ranges::all_of(rows, [](const Words& row) {
           return std::ranges::all_of(row, [](const std::string& field) {
             const View bare = stripped(field);
             return !bare.empty() && bare.front() == '"' && bare.back() == '"';
           });
         });
}

// ---- lists in order ----

/// Letters without their accents; characters that have no ASCII form are dropped.
std::string ascii_form(View text) {
  std::string out = text::normalize(text::to_valid_utf8(text), text::NormalForm::kNfkd);
  std::erase_if(out, [](char c) { return (c & 0x80) != 0; });
  return out;
}

bool reverse_newline(View text, const Map&) {
  constexpr std::size_t kFewestLines = 52;
  Words countries;
  for (const std::string& line : lines_of(text)) {
    const View bare = strip_punctuation(line);
    if (bare.empty() || (countries.empty() && !contains(bare, "Zimbabwe"))) continue;
    countries.push_back(ascii_form(bare));
  }
  return countries.size() >= kFewestLines &&
         std::ranges::is_sorted(countries, std::ranges::greater());
}

bool european_capitals_sort(View text, const Map&) {
  constexpr auto kFromNorthToSouth = std::to_array<View>(
      {"Reykjavik",  "Helsinki", "Oslo",     "Tallinn",    "Stockholm", "Riga",      "Moscow",
       "Copenhagen", "Vilnius",  "Minsk",    "Dublin",     "Berlin",    "Amsterdam", "Warsaw",
       "London",     "Brussels", "Prague",   "Luxembourg", "Paris",     "Vienna",    "Bratislava",
       "Budapest",   "Vaduz",    "Chisinau", "Bern",       "Ljubljana", "Zagreb"});
  const std::string plain = ascii_form(text);
  std::vector<View> capitals;
  for (const View part : split(plain, ",")) {
    if (const View bare = stripped(part); !bare.empty()) capitals.push_back(bare);
  }
  return std::ranges::equal(capitals, kFromNorthToSouth);
}

// ---- questions ----

/// Bytes of "Question 12.", with blanks after it, at text[i]; 0 when it does not stand there.
std::size_t question_mark_bytes(View text, std::size_t i) {
  constexpr View kQuestion = "Question ";
  if (!text.substr(i).starts_with(kQuestion)) return 0;
  std::size_t end = i + kQuestion.size();
  const std::size_t digits = end;
  while (end < text.size() && is_digit(text[end])) ++end;
  if (end == digits) return 0;
  if (end < text.size() && View(".|):;").find(text[end]) != View::npos) ++end;
  while (end < text.size() && is_space(text[end])) ++end;
  return end - i;
}

/// "B) rain"
bool is_option(View line) {
  if (line.size() < 3 || std::tolower(static_cast<unsigned char>(line[0])) < 'a' ||
      std::tolower(static_cast<unsigned char>(line[0])) > 'e' ||
      View(".|)").find(line[1]) == View::npos)
    return false;
  const View rest = stripped(line.substr(2));
  return !rest.empty() && is_word_character(rest, 0);
}

bool mcq_count_length(View text, const Map&) {
  if (!text.starts_with("Question")) return false;
  std::vector<View> questions;
  std::size_t begin = 0;
  const auto add = [&](std::size_t end) {
    if (const View question = stripped(text.substr(begin, end - begin)); !question.empty())
      questions.push_back(question);
  };
  for (std::size_t i = 0; i < text.size(); ++i) {
    const std::size_t bytes = question_mark_bytes(text, i);
    if (bytes == 0) continue;
    add(i);
    begin = i + bytes;
    i = begin - 1;
  }
  add(text.size());
  if (questions.size() != 4) return false;
  std::size_t before = 0;
  for (std::size_t i = 0; i < questions.size(); ++i) {
    std::string asked;
    int num_options = 0;
    for (const std::string& line : lines_of(questions[i])) {
      const View bare = stripped(line);
      if (is_option(bare)) {
        ++num_options;
      } else if (num_options == 0) {
        asked.append(" ").append(bare);
      }
    }
    const std::size_t length = count_points(stripped(asked));
    if (num_options != 5 || (i > 0 && length <= before)) return false;
    before = length;
  }
  return true;
}

// ---- format ----

bool quotes(View text, const Map&) {
  constexpr int kLevels = 3;
  std::string open;
  int deepest = 0;
  for (const char c : text) {
    if (!open.empty() && open.back() == c) {
      open.pop_back();
      if (deepest - static_cast<int>(open.size()) >= kLevels) return true;
    } else if (c == '"' || c == '\'') {
      open += c;
      deepest = std::max(deepest, static_cast<int>(open.size()));
    }
  }
  return false;
}

/// Whether the options are letters: "a), b), c), d)". Then an answer has to be one exactly.
bool are_letters(View options) {
  for (const char letter : {'a', 'b', 'c'}) {
    while (!options.empty() && !is_word_character(options, 0))
      options.remove_prefix(point_bytes(options, 0));
    if (options.empty() || std::tolower(static_cast<unsigned char>(options.front())) != letter)
      return false;
    options.remove_prefix(1);
  }
  return true;
}

bool options(View text, const Map& map) {
  const std::string all = Arguments(map).text("options");
  const View separator = contains(all, "/") ? "/" : contains(all, "or") ? "or" : ",";
  const bool is_exact = are_letters(all);
  return std::ranges::any_of(split(all, std::string(separator)), [&](View option) {
    option = stripped(option);
    return is_exact ? text == option
                    : to_lower(strip_punctuation(option)) == to_lower(strip_punctuation(text));
  });
}

/// Non-empty runs between `*` and `*`, or `**` and `**`, on one line, read from left to right.
int64_t num_marked(View text, View mark) {
  int64_t count = 0;
  for (std::size_t i = 0; (i = text.find(mark, i)) != View::npos;) {
    const std::size_t begin = i + mark.size();
    const std::size_t end = std::min(text.find_first_of("\n*", begin), text.size());
    if (!text.substr(end).starts_with(mark)) {
      ++i;
      continue;
    }
    if (!stripped(text.substr(begin, end - begin)).empty()) ++count;
    i = end + mark.size();
  }
  return count;
}

bool number_highlighted_sections(View text, const Map& map) {
  return num_marked(text, "*") + num_marked(text, "**") >= Arguments(map).integer("num_highlights");
}

bool multiple_sections(View text, const Map& map) {
  const Arguments in(map);
  const std::string given = in.text("section_spliter");
  const View word = stripped(given);
  if (word.empty()) throw ConfigError("section_spliter should not be empty");
  int64_t count = 0;
  for (std::size_t i = 0; (i = text.find(word, i)) != View::npos;) {
    i += word.size();
    if (i < text.size() && is_space(text[i])) ++i;
    const std::size_t digits = i;
    while (i < text.size() && is_digit(text[i])) ++i;
    count += i > digits ? 1 : 0;
  }
  return count >= in.integer("num_sections");
}

// ---- length ----

/// Paragraphs are divided by three asterisks.
bool number_paragraphs(View text, const Map& map) {
  const std::vector<View> parts = split(text, "***");
  auto count = static_cast<int64_t>(parts.size());
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (!stripped(parts[i]).empty()) continue;
    if (i != 0 && i + 1 != parts.size()) return false;
    --count;
  }
  return count == Arguments(map).integer("num_paragraphs");
}

bool nth_paragraph_first_word(View text, const Map& map) {
  const Arguments in(map);
  const int64_t n = in.integer("nth_paragraph");
  if (n < 1) throw ConfigError("nth_paragraph should be at least 1");
  const std::vector<View> paragraphs = split(text, "\n\n");
  const auto count = std::ranges::count_if(
      paragraphs, [](View paragraph) { return !stripped(paragraph).empty(); });
  if (n > count) return false;
  const Words words = words_of(paragraphs[static_cast<std::size_t>(n - 1)]);
  if (words.empty()) return false;
  View word = words.front();
  for (const char quote : {'\'', '"'}) {
    while (word.starts_with(quote)) word.remove_prefix(1);
  }
  word = word.substr(0, word.find_first_of(".,?!'\""));
  return count == in.integer("num_paragraphs") && to_lower(word) == to_lower(in.text("first_word"));
}

// ---- content ----

/// `parts` one after the other, with at most one blank between them, somewhere in `low`.
bool has_spaced(View low, std::initializer_list<View> parts) {
  for (std::size_t start = 0; (start = low.find(*parts.begin(), start)) != View::npos; ++start) {
    std::size_t i = start;
    bool is_first = true;
    const bool matches = std::ranges::all_of(parts, [&](View part) {
      if (!is_first && i < low.size() && is_space(low[i])) ++i;
      is_first = false;
      const bool is_here = low.substr(i).starts_with(part);
      i += is_here ? part.size() : 0;
      return is_here;
    });
    if (matches) return true;
  }
  return false;
}

bool postscript(View text, const Map& map) {
  const std::string given = Arguments(map).text("postscript_marker");
  const View marker = stripped(given);
  const std::string low = to_lower(text);
  if (marker == "P.P.S") return has_spaced(low, {"p.", "p.", "s"});
  if (marker == "P.S.") return has_spaced(low, {"p.", "s."});
  return contains(low, to_lower(marker));
}

constexpr std::array kDocumentInstructions{
    Instruction{"custom:csv_city", csv_city},
    Instruction{"custom:csv_special_character", csv_special_character},
    Instruction{"custom:csv_quotes", csv_quotes},
    Instruction{"custom:reverse_newline", reverse_newline},
    Instruction{"custom:european_capitals_sort", european_capitals_sort},
    Instruction{"custom:mcq_count_length", mcq_count_length},
    Instruction{"format:quotes", quotes},
    Instruction{"format:options", options},
    Instruction{"detectable_format:number_highlighted_sections", number_highlighted_sections},
    Instruction{"detectable_format:multiple_sections", multiple_sections},
    Instruction{"length_constraints:number_paragraphs", number_paragraphs},
    Instruction{"length_constraints:nth_paragraph_first_word", nth_paragraph_first_word},
    Instruction{"detectable_content:postscript", postscript},
};

}  // namespace

std::span<const Instruction> document_instructions() { return kDocumentInstructions; }

}  // namespace slime::reward
