#include "text/tokenizer/word_splitter.h"

#include <gtest/gtest.h>

#include "core/random.h"
#include "text/unicode/unicode.h"

namespace slime::text {
namespace {

/// Characters of every class that a pattern tells apart, all older than the Unicode of any PCRE2 in
/// use. U+180E is white space to PCRE2 but not to Oniguruma; the dialect translation must hide
/// that.
std::string random_text(uint64_t stream) {
  static const std::u32string kAlphabet =
      U"aastTsSlLvVrReEdDmMbBxX''''   "
      U"\t\n\n\r019!?/-_.$+\u00A0\u3000\u2028\u0085\u180E\u017F\u00DF\u0130\u01C5\u02B0"
      U"\u0301\u093F\u20DD\u0416\u0436\u4E2D\u3042\u3007\u3005\uAC00\u0E33\u0665\u2167\u00B2\u20AC"
      U"\u2603\u200D\U0001F600";
  std::string text;
  const int length = static_cast<int>(uniform(1, stream, 0) * 40);
  for (int i = 1; i <= length; ++i) {
    const auto at = static_cast<std::size_t>(uniform(1, stream, static_cast<uint64_t>(i)) *
                                             static_cast<double>(kAlphabet.size()));
    append_utf8(kAlphabet[at], text);
  }
  return text;
}

std::vector<std::string_view> matches_of(const auto& matcher, std::string_view text) {
  std::vector<Range> ranges;
  matcher.find_all(text, ranges);
  std::vector<std::string_view> matches;
  for (const Range& range : ranges)
    matches.push_back(text.substr(range.begin, range.end - range.begin));
  return matches;
}

TEST(WordSplitter, EveryKnownPatternCutsAsItsRegularExpression) {
  ASSERT_EQ(WordSplitter::known_patterns().size(), 9u);
  for (const std::string_view pattern : WordSplitter::known_patterns()) {
    SCOPED_TRACE(pattern);
    const Expected<Regex> slow = Regex::compile(pattern);
    ASSERT_TRUE(slow.has_value()) << slow.error().message;
    const WordSplitter* fast = WordSplitter::find(pattern);
    for (uint64_t stream = 0; stream < 3000; ++stream) {
      const std::string text = random_text(stream);
      ASSERT_EQ(matches_of(*fast, text), matches_of(*slow, text)) << text;
    }
  }
}

TEST(WordSplitter, AnUnknownPatternHasNone) { EXPECT_EQ(WordSplitter::find("\\w+"), nullptr); }

TEST(Regex, RefusesWhatItCannotRun) {
  for (const char* pattern :
       {"(", "[a", "(*UTF)a", "\\p{Nonsense}", "a{2,1}", "[a&&[b]", "\\u12"}) {
    EXPECT_FALSE(Regex::compile(pattern).has_value()) << pattern;
  }
}

TEST(Regex, AClassIntersectionMatchesWhatIsInBoth) {
  const auto regex = Regex::compile("[\\p{L}&&[^\\p{Han}]]+").value();
  EXPECT_EQ(matches_of(regex, "ab\u4E2Dc"), (std::vector<std::string_view>{"ab", "c"}));
}

TEST(Regex, AMegabyteOfRepeatedGroupsIsMatched) {
  const auto regex = Regex::compile("(?:[a&&[^b]])+").value();
  EXPECT_EQ(matches_of(regex, std::string(1 << 20, 'a')).size(), 1u);
}

}  // namespace
}  // namespace slime::text
