// Checks of IFBench that count words, numbers and signs, or look at the letters of words.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <set>
#include <string>
#include <unordered_map>

#include "core/error.h"
#include "reward/ifbench_checks.h"
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

constexpr std::array kWordInstructions{
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
};

}  // namespace

std::span<const Instruction> word_instructions() { return kWordInstructions; }

}  // namespace slime::reward
