#include "reward/ifbench_text.h"

#include <fmt/format.h>

#include <array>
#include <cctype>
#include <iterator>
#include <span>

#include "core/error.h"
#include "reward/python_text.h"

namespace slime::reward::ifbench {
namespace {

constexpr std::string_view kPunctuation = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~";

/// Words after whose full stop a sentence ends only where the next word is in kOpeners.
constexpr auto kAbbreviations = std::to_array<std::string_view>(
    {"mr",  "mrs",  "ms",    "dr",  "prof", "st",   "jr",   "sr",     "vs",  "inc",   "ltd",
     "co",  "corp", "gen",   "col", "maj",  "lt",   "sen",  "rep",    "jan", "feb",   "aug",
     "sep", "sept", "oct",   "nov", "dec",  "tues", "wed",  "fri",    "ave", "u.s",   "u.k",
     "u.n", "d.c",  "u.s.a", "a.m", "p.m",  "ph.d", "bros", "messrs", "ft",  "calif", "n.y"});

/// Words in lower case that open a sentence when they have a capital after an abbreviation.
constexpr auto kOpeners = std::to_array<std::string_view>(
    {"the",     "this",    "these",   "he",       "it",       "they", "i",         "in",
     "if",      "when",    "while",   "although", "though",   "but",  "so",        "yet",
     "however", "since",   "under",   "some",     "many",     "most", "both",      "there",
     "here",    "even",    "despite", "instead",  "moreover", "thus", "therefore", "finally",
     "overall", "without", "through", "between",  "whether",  "such", "same"});

bool is_closing(char c) { return std::string_view("\"')]}*").find(c) != std::string_view::npos; }

bool is_listed(std::span<const std::string_view> words, std::string_view word) {
  return std::ranges::find(words, word) != words.end();
}

/// Whether a sentence ends with `word`, which stands before white space; `next` is the word behind.
bool ends_sentence(std::string_view word, std::string_view next) {
  while (!word.empty() && is_closing(word.back())) word.remove_suffix(1);
  if (word.empty()) return false;
  const char last = word.back();
  if (last == '!' || last == '?') return true;
  if (last != '.') return false;
  const bool has_capital = !next.empty() && std::isupper(static_cast<unsigned char>(next[0])) != 0;
  if (word.ends_with("..")) return has_capital;
  word.remove_suffix(1);
  while (!word.empty() && !is_word_character(word, 0)) word.remove_prefix(point_bytes(word, 0));
  const bool is_initial = word.size() == 1 && is_letter(word.front()) && word != "I";
  if (!is_initial && !is_listed(kAbbreviations, to_lower(word))) return true;
  const std::string_view bare = next.substr(0, next.find_first_of(".,:;!?'"));
  return has_capital && is_listed(kOpeners, to_lower(bare));
}

/// Where the sentence that ends with `word` ends in it. Quotes and brackets behind the full stop
/// belong to the sentence, asterisks open the next one: "**So.** Yes" is "**So." and "** Yes".
std::size_t sentence_end(std::string_view word) {
  std::size_t end = word.size();
  while (end > 0 && is_closing(word[end - 1])) --end;
  const std::size_t asterisk = word.find('*', end);
  return asterisk == std::string_view::npos ? word.size() : asterisk;
}

/// Whether `word` is a contraction's end, such as the 's of "it's": its bytes, or 0.
std::size_t contraction_bytes(std::string_view word) {
  const std::string low = to_lower(word);
  for (const std::string_view end : {"n't", "'ll", "'re", "'ve", "'s", "'m", "'d"}) {
    if (low.size() > end.size() && low.ends_with(end)) return end.size();
  }
  return 0;
}

/// A word without punctuation at its ends, but perhaps with some inside.
void append_word(std::string_view word, Words& tokens) {
  const std::string low = to_lower(word);
  for (const auto& [whole, first] : {std::pair<std::string_view, std::size_t>{"cannot", 3},
                                     {"gonna", 3},
                                     {"gotta", 3},
                                     {"wanna", 3},
                                     {"gimme", 3},
                                     {"lemme", 3}}) {
    if (low != whole) continue;
    tokens.emplace_back(word.substr(0, first));
    tokens.emplace_back(word.substr(first));
    return;
  }
  const std::size_t end = contraction_bytes(word);
  tokens.emplace_back(word.substr(0, word.size() - end));
  if (end > 0) tokens.emplace_back(word.substr(word.size() - end));
}

/// Bytes of the sign at word[i] that is a token wherever it stands; 0 when there is none.
std::size_t sign_bytes(std::string_view word, std::size_t i) {
  const std::string_view rest = word.substr(i);
  for (const std::string_view sign : {"...", "--", "``", "''"}) {
    if (rest.starts_with(sign)) return sign.size();
  }
  const char c = word[i];
  if (c == ',' || c == ':') return i + 1 < word.size() && is_digit(word[i + 1]) ? 0 : 1;
  return std::string_view(";@#$%&?!()[]{}<>\"").find(c) == std::string_view::npos ? 0 : 1;
}

/// The tokens of what stands between white space.
void append_tokens(std::string_view word, bool is_last, Words& tokens) {
  std::string_view tail;  // the full stop that ends the sentence
  if (is_last) {
    std::size_t end = word.size();
    while (end > 0 && is_closing(word[end - 1])) --end;
    if (end > 1 && word[end - 1] == '.' && word[end - 2] != '.') {
      tail = word.substr(end - 1);
      word = word.substr(0, end - 1);
    }
  }
  std::size_t begin = 0;
  if (word.size() > 1 && word.front() == '\'' && contraction_bytes("x" + std::string(word)) == 0) {
    tokens.emplace_back("'");
    begin = 1;
  }
  std::size_t i = begin;
  const auto flush = [&](std::size_t end) {
    if (end > begin) append_word(word.substr(begin, end - begin), tokens);
  };
  while (i < word.size()) {
    if (const std::size_t bytes = sign_bytes(word, i); bytes > 0) {
      flush(i);
      tokens.emplace_back(word.substr(i, bytes));
      begin = i = i + bytes;
    } else if (word[i] == '\'' && i + 1 == word.size() && i > begin) {
      flush(i);
      tokens.emplace_back("'");
      begin = ++i;
    } else {
      ++i;
    }
  }
  flush(i);
  for (const char c : tail) tokens.emplace_back(1, c);
}

}  // namespace

bool is_space(char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; }
bool is_punctuation(char c) { return kPunctuation.find(c) != std::string_view::npos; }

Words words_of(std::string_view text) {
  const std::vector<std::string_view> words = split(text);
  return {words.begin(), words.end()};
}

Words word_runs(std::string_view text) {
  Words runs;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < text.size();) {
    std::size_t next = i;
    if (!text::python::is_word_point(next_point(text, next))) {
      if (i > begin) runs.emplace_back(text.substr(begin, i - begin));
      begin = next;
    }
    i = next;
  }
  if (begin < text.size()) runs.emplace_back(text.substr(begin));
  return runs;
}

std::string first_character(std::string_view word) {
  return word.empty() ? std::string() : to_lower(word.substr(0, point_bytes(word, 0)));
}

bool is_all_upper(std::string_view text) {
  bool has_case = false;
  for (std::size_t i = 0; i < text.size();) {
    const char32_t point = next_point(text, i);
    if (text::python::is_lower(point)) return false;
    has_case |= text::python::is_upper(point);
  }
  return has_case;
}

bool is_all_lower(std::string_view text) {
  bool has_case = false;
  for (std::size_t i = 0; i < text.size();) {
    const char32_t point = next_point(text, i);
    if (text::python::is_upper(point)) return false;
    has_case |= text::python::is_lower(point);
  }
  return has_case;
}

Words lines_of(std::string_view text) {
  Words lines;
  while (true) {
    const std::size_t end = text.find('\n');
    lines.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) return lines;
    text.remove_prefix(end + 1);
  }
}

Words filled_lines(std::string_view text) {
  Words lines = lines_of(text);
  std::erase_if(lines, [](const std::string& line) { return stripped(line).empty(); });
  return lines;
}

std::string without_punctuation(std::string_view text) {
  std::string out;
  std::ranges::copy_if(text, std::back_inserter(out), [](char c) { return !is_punctuation(c); });
  return out;
}

std::string_view strip_punctuation(std::string_view word) {
  while (!word.empty() && (is_punctuation(word.front()) || word.front() == ' '))
    word.remove_prefix(1);
  while (!word.empty() && (is_punctuation(word.back()) || word.back() == ' '))
    word.remove_suffix(1);
  return word;
}

int64_t count_of(std::string_view text, std::string_view part) {
  if (part.empty()) return 0;
  int64_t count = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string_view::npos; at += part.size())
    ++count;
  return count;
}

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

bool has_whole_word(std::string_view text, std::string_view word) {
  const auto is_boundary = [text](std::size_t at) {  // \b
    const bool before = at > 0 && is_word_character(last_characters(text.substr(0, at), 1), 0);
    return before != (at < text.size() && is_word_character(text, at));
  };
  for (std::size_t at = 0; (at = text.find(word, at)) != std::string_view::npos; ++at) {
    if (is_boundary(at) && is_boundary(at + word.size())) return true;
  }
  return false;
}

Words sentences_of(std::string_view text) {
  Words sentences;
  std::size_t begin = 0;
  std::string_view word;
  const auto add = [&](std::size_t end) {
    if (const std::string_view sentence = stripped(text.substr(begin, end - begin));
        !sentence.empty())
      sentences.emplace_back(sentence);
    begin = end;
  };
  for (const std::string_view next : split(text)) {
    if (!word.empty() && ends_sentence(word, next)) {
      add(static_cast<std::size_t>(word.data() - text.data()) + sentence_end(word));
    }
    word = next;
  }
  if (!word.empty() && ends_sentence(word, {}))
    add(static_cast<std::size_t>(word.data() - text.data()) + sentence_end(word));
  add(text.size());
  return sentences;
}

Words tokens_of(std::string_view text) {
  Words tokens;
  for (const std::string& sentence : sentences_of(text)) {
    const Words words = words_of(sentence);
    for (std::size_t i = 0; i < words.size(); ++i)
      append_tokens(words[i], i + 1 == words.size(), tokens);
  }
  return tokens;
}

int64_t Arguments::integer(std::string_view key) const {
  json::error_code error;
  const int64_t number = find(key).to_number<int64_t>(error);
  if (error) throw ConfigError(fmt::format("{} should be a whole number", key));
  return number;
}

double Arguments::number(std::string_view key) const {
  if (!find(key).is_number()) throw ConfigError(fmt::format("{} should be a number", key));
  return find(key).to_number<double>();
}

std::string Arguments::text(std::string_view key) const {
  if (!find(key).is_string()) throw ConfigError(fmt::format("{} should be a string", key));
  return std::string(find(key).get_string());
}

Words Arguments::texts(std::string_view key) const {
  Words out;
  if (!find(key).is_array()) throw ConfigError(fmt::format("{} should be a list", key));
  for (const json::value& value : find(key).get_array()) {
    if (!value.is_string()) throw ConfigError(fmt::format("{} should hold strings", key));
    out.emplace_back(value.get_string());
  }
  return out;
}

bool Arguments::holds(double count, double threshold, std::string_view relation_key) const {
  const std::string relation = text(relation_key);
  if (relation == "less than") return count < threshold;
  if (relation == "at least") return count >= threshold;
  throw ConfigError(
      fmt::format("{} \"{}\" should be less than or at least", relation_key, relation));
}

const json::value& Arguments::find(std::string_view key) const {
  const json::value* value = map_.if_contains(key);
  if (value == nullptr) throw ConfigError(fmt::format("{} is missing", key));
  return *value;
}

}  // namespace slime::reward::ifbench
