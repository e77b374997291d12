// Checks of IFBench and IFEval that look at sentences, tokens, or lists of English words.

#include <algorithm>
#include <array>
#include <cctype>
#include <string>

#include "core/error.h"
#include "reward/emoji.h"
#include "reward/ifbench_checks.h"
#include "reward/ifbench_text.h"
#include "reward/python_text.h"

namespace slime::reward {
namespace {

using namespace ifbench;

using View = std::string_view;
using Map = json::object;

constexpr auto kNames = std::to_array<View>(
    {"Emma",     "Liam",     "Sophia",   "Jackson", "Olivia",      "Noah",      "Ava",
     "Lucas",    "Isabella", "Mason",    "Mia",     "Ethan",       "Charlotte", "Alexander",
     "Amelia",   "Benjamin", "Harper",   "Leo",     "Zoe",         "Daniel",    "Chloe",
     "Samuel",   "Lily",     "Matthew",  "Grace",   "Owen",        "Abigail",   "Gabriel",
     "Ella",     "Jacob",    "Scarlett", "Nathan",  "Victoria",    "Elijah",    "Layla",
     "Nicholas", "Audrey",   "David",    "Hannah",  "Christopher", "Penelope",  "Thomas",
     "Nora",     "Andrew",   "Aria",     "Joseph",  "Claire",      "Ryan",      "Stella",
     "Jonathan"});

constexpr auto kPronouns = std::to_array<View>(
    {"i",          "me",        "we",         "us",        "you",      "he",         "him",
     "she",        "her",       "it",         "they",      "them",     "my",         "mine",
     "our",        "ours",      "your",       "yours",     "his",      "hers",       "its",
     "their",      "theirs",    "myself",     "ourselves", "yourself", "yourselves", "himself",
     "herself",    "itself",    "themselves", "this",      "that",     "these",      "those",
     "who",        "whom",      "whose",      "which",     "what",     "whoever",    "whomever",
     "whatever",   "whichever", "anybody",    "anyone",    "anything", "everybody",  "everyone",
     "everything", "nobody",    "nothing",    "somebody",  "someone",  "something",  "each",
     "either",     "neither",   "both",       "all",       "some",     "any",        "none"});

/// The English stop words of NLTK that are one run of letters; those with an apostrophe are two.
constexpr auto kStopWords = std::to_array<View>(
    {"i",       "me",      "my",      "myself",   "we",         "our",    "ours",    "ourselves",
     "you",     "your",    "yours",   "yourself", "yourselves", "he",     "him",     "his",
     "himself", "she",     "her",     "hers",     "herself",    "it",     "its",     "itself",
     "they",    "them",    "their",   "theirs",   "themselves", "what",   "which",   "who",
     "whom",    "this",    "that",    "these",    "those",      "am",     "is",      "are",
     "was",     "were",    "be",      "been",     "being",      "have",   "has",     "had",
     "having",  "do",      "does",    "did",      "doing",      "a",      "an",      "the",
     "and",     "but",     "if",      "or",       "because",    "as",     "until",   "while",
     "of",      "at",      "by",      "for",      "with",       "about",  "against", "between",
     "into",    "through", "during",  "before",   "after",      "above",  "below",   "to",
     "from",    "up",      "down",    "in",       "out",        "on",     "off",     "over",
     "under",   "again",   "further", "then",     "once",       "here",   "there",   "when",
     "where",   "why",     "how",     "all",      "any",        "both",   "each",    "few",
     "more",    "most",    "other",   "some",     "such",       "no",     "nor",     "not",
     "only",    "own",     "same",    "so",       "than",       "too",    "very",    "s",
     "t",       "can",     "will",    "just",     "don",        "should", "now",     "d",
     "ll",      "m",       "o",       "re",       "ve",         "y",      "ain",     "aren",
     "couldn",  "didn",    "doesn",   "hadn",     "hasn",       "haven",  "isn",     "ma",
     "mightn",  "mustn",   "needn",   "shan",     "shouldn",    "wasn",   "weren",   "won",
     "wouldn"});

template <std::size_t N>
bool is_one_of(const std::array<View, N>& words, View word) {
  return std::ranges::find(words, word) != words.end();
}

int64_t sentences_with_end(const Words& sentences, char end) {
  return std::ranges::count_if(sentences,
                               [end](const std::string& text) { return text.ends_with(end); });
}

// ---- count ----

bool person_names(View text, const Map& map) {
  const auto count =
      std::ranges::count_if(kNames, [&](View name) { return has_whole_word(text, name); });
  return count >= Arguments(map).integer("N");
}

bool pronouns(View text, const Map& map) {
  const Words tokens = tokens_of(replaced(to_lower(text), "/", " "));
  const auto count = std::ranges::count_if(
      tokens, [](const std::string& token) { return is_one_of(kPronouns, token); });
  return count >= Arguments(map).integer("N");
}

bool number_sentences(View text, const Map& map) {
  const Arguments in(map);
  return in.holds(static_cast<double>(sentences_of(text).size()),
                  static_cast<double>(in.integer("num_sentences")), "relation");
}

// ---- ratio ----

bool stop_words(View text, const Map& map) {
  const Words words = word_runs(text);
  if (words.empty()) return false;
  const auto count = std::ranges::count_if(
      words, [](const std::string& word) { return is_one_of(kStopWords, to_lower(word)); });
  return 100.0 * static_cast<double>(count) / static_cast<double>(words.size()) <=
         Arguments(map).number("percentage");
}

bool sentence_type(View text, const Map&) {
  const Words sentences = sentences_of(text);
  return sentences_with_end(sentences, '.') == 2 * sentences_with_end(sentences, '?');
}

bool sentence_balance(View text, const Map&) {
  const Words sentences = sentences_of(text);
  const int64_t statements = sentences_with_end(sentences, '.');
  return statements == sentences_with_end(sentences, '?') &&
         statements == sentences_with_end(sentences, '!');
}

bool sentence_words(View text, const Map&) {
  const Words sentences = sentences_of(text);
  return sentences.size() == 3 && std::ranges::all_of(sentences, [&](const std::string& sentence) {
           return count_points(sentence) == count_points(sentences[0]);
         });
}

// ---- words ----

bool last_first(View text, const Map&) {
  // Only the outer ends lose their punctuation: "so, so" begins with "so,".
  const auto is_dropped = [](char c) { return is_punctuation(c) || c == ' '; };
  const Words sentences = sentences_of(text);
  for (std::size_t i = 0; i + 1 < sentences.size(); ++i) {
    View before = sentences[i], after = sentences[i + 1];
    while (!before.empty() && is_dropped(before.back())) before.remove_suffix(1);
    while (!after.empty() && is_dropped(after.front())) after.remove_prefix(1);
    const Words left = words_of(before), right = words_of(after);
    if (left.empty() || right.empty() || to_lower(left.back()) != to_lower(right.front()))
      return false;
  }
  return true;
}

bool keywords_specific_position(View text, const Map& map) {
  const Arguments in(map);
  const Words sentences = sentences_of(text);
  const int64_t n = in.integer("n"), m = in.integer("m");
  if (n < 1 || m < 1) throw ConfigError("n and m should be at least 1");
  if (static_cast<int64_t>(sentences.size()) < n) return false;
  Words words = tokens_of(sentences[static_cast<std::size_t>(n - 1)]);
  std::erase_if(
      words, [](const std::string& token) { return word_runs(replaced(token, "_", "")).empty(); });
  return static_cast<int64_t>(words.size()) >= m &&
         to_lower(words[static_cast<std::size_t>(m - 1)]) == to_lower(stripped(in.text("keyword")));
}

bool words_position(View text, const Map& map) {
  const std::string keyword = to_lower(stripped(Arguments(map).text("keyword")));
  Words words = tokens_of(text);
  if (!words.empty() && words.back().size() == 1 && is_punctuation(words.back()[0]))
    words.pop_back();
  return words.size() >= 2 && to_lower(words[1]) == keyword &&
         to_lower(words[words.size() - 2]) == keyword;
}

// ---- sentence ----

bool alliteration_increment(View text, const Map&) {
  int64_t before = -1;
  for (const std::string& sentence : sentences_of(text)) {
    Words words;
    for (const std::string& word : words_of(sentence)) {
      View clean = word;
      while (!clean.empty() && is_punctuation(clean.front())) clean.remove_prefix(1);
      if (!clean.empty()) words.push_back(first_character(clean));
    }
    int64_t score = 0;
    bool continues = false;
    for (std::size_t i = 0; i + 1 < words.size(); ++i) {
      const bool is_same = words[i] == words[i + 1];
      if (is_same) score += continues ? 1 : 2;
      continues = is_same;
    }
    if (score <= before) return false;
    before = score;
  }
  return true;
}

bool increment(View text, const Map& map) {
  const int64_t more = Arguments(map).integer("small_n");
  int64_t before = -1;
  for (const std::string& sentence : sentences_of(text)) {
    const auto count = static_cast<int64_t>(words_of(without_punctuation(sentence)).size());
    if (before >= 0 && count != before + more) return false;
    before = count;
  }
  return true;
}

bool keyword(View text, const Map& map) {
  const Arguments in(map);
  const int64_t n = in.integer("N");
  if (n < 1) throw ConfigError("N should be at least 1");
  const Words sentences = sentences_of(text);
  return static_cast<int64_t>(sentences.size()) >= n &&
         has_whole_word(to_lower(sentences[static_cast<std::size_t>(n - 1)]),
                        to_lower(in.text("word")));
}

// ---- format ----

bool emoji(View text, const Map&) {
  const auto characters_of = [](View sentence) {
    Words characters;
    const std::string bare = without_punctuation(sentence);
    const View inside = stripped(bare);
    for (std::size_t i = 0; i < inside.size(); i += point_bytes(inside, i))
      characters.emplace_back(inside.substr(i, point_bytes(inside, i)));
    return characters;
  };
  const Words sentences = sentences_of(text);
  for (std::size_t i = 0; i < sentences.size(); ++i) {
    const Words own = characters_of(sentences[i]);
    if (own.empty()) return false;
    // The last one may be a variation selector.
    if (is_emoji(own.back()) || (own.size() > 1 && is_emoji(own[own.size() - 2]))) continue;
    if (i + 1 == sentences.size()) return false;
    const Words next = characters_of(sentences[i + 1]);
    if (next.empty() || !is_emoji(next.front())) return false;
  }
  return true;
}

bool title_case(View text, const Map&) {
  return std::ranges::none_of(tokens_of(text), [](const std::string& word) {
    std::size_t bytes = 0;
    if (!text::python::is_lower(next_point(word, bytes))) return false;
    const View rest = View(word).substr(bytes);
    return rest.empty() || is_all_upper(rest) || is_all_lower(rest);
  });
}

bool no_bullets_bullets(View text, const Map&) {
  std::size_t num_sentences = 0;
  int64_t num_bullets = 0;
  bool reads_sentences = true;
  for (const std::string& line : lines_of(text)) {
    const View bare = stripped(line);
    if (bare.starts_with('*')) {
      reads_sentences = false;
      if (num_sentences < 2) return false;
      ++num_bullets;
    } else if (reads_sentences) {
      const Words sentences = sentences_of(bare);
      num_sentences += sentences.size();
      reads_sentences = !sentences.empty();  // nothing but bullets after a blank line
    } else {
      return false;
    }
  }
  return num_bullets >= 2;
}

// ---- custom ----

bool word_reverse(View text, const Map&) {
  Words words = words_of(without_punctuation(to_lower(stripped(text))));
  std::ranges::reverse(words);
  std::string turned;
  for (const std::string& word : words) turned += (turned.empty() ? "" : " ") + word;
  return contains(turned, "bald eagle") && sentences_of(turned) == Words{turned};
}

bool sentence_alphabet(View text, const Map&) {
  const Words sentences = sentences_of(text);
  if (sentences.size() != 26) return false;
  for (std::size_t i = 0; i < sentences.size(); ++i) {
    if (first_character(sentences[i]) != std::string(1, static_cast<char>('a' + i))) return false;
  }
  return true;
}

constexpr std::array kSentenceInstructions{
    Instruction{"count:person_names", person_names},
    Instruction{"count:pronouns", pronouns},
    Instruction{"length_constraints:number_sentences", number_sentences},
    Instruction{"ratio:stop_words", stop_words},
    Instruction{"ratio:sentence_type", sentence_type},
    Instruction{"ratio:sentence_balance", sentence_balance},
    Instruction{"ratio:sentence_words", sentence_words},
    Instruction{"words:last_first", last_first},
    Instruction{"words:keywords_specific_position", keywords_specific_position},
    Instruction{"words:words_position", words_position},
    Instruction{"sentence:alliteration_increment", alliteration_increment},
    Instruction{"sentence:increment", increment},
    Instruction{"sentence:keyword", keyword},
    Instruction{"format:emoji", emoji},
    Instruction{"format:title_case", title_case},
    Instruction{"format:no_bullets_bullets", no_bullets_bullets},
    Instruction{"custom:word_reverse", word_reverse},
    Instruction{"custom:sentence_alphabet", sentence_alphabet},
};

}  // namespace

std::span<const Instruction> sentence_instructions() { return kSentenceInstructions; }

}  // namespace slime::reward
