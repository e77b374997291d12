#include "engine/drafts/suffix_index.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <utility>

#include "core/error.h"
#include "core/splitmix64.h"

namespace slime::engine {
namespace {

using Ids = std::vector<TokenId>;

void append_all(SuffixIndex& index, int64_t text, const Ids& ids) {
  for (const TokenId id : ids) index.append(text, id);
}

int64_t add_whole_text(SuffixIndex& index, const Ids& ids) {
  const int64_t text = index.begin();
  append_all(index, text, ids);
  return text;
}

std::vector<Draft> proposed(const SuffixIndex& index, const Ids& context, int64_t most = 7) {
  std::vector<Draft> drafts{{.id = 99, .chance = 1}};  // replaced
  index.propose(context, most, drafts);
  return drafts;
}

Ids draft_ids(const std::vector<Draft>& drafts) {
  Ids ids;
  for (const Draft& draft : drafts) ids.push_back(draft.id);
  return ids;
}

TEST(SuffixIndex, FollowsTheLongestCommonEnding) {
  SuffixIndex index;
  add_whole_text(index, {1, 2, 3, 4, 50, 51});
  add_whole_text(index, {9, 9, 9, 4, 60, 61});
  add_whole_text(index, {8, 8, 8, 4, 60, 61});
  EXPECT_EQ(draft_ids(proposed(index, {1, 2, 3, 4})), (Ids{50, 51}));
  EXPECT_EQ(draft_ids(proposed(index, {7, 3, 4})), (Ids{50, 51}));
  EXPECT_EQ(draft_ids(proposed(index, {7, 9, 4}, 1)), (Ids{60}));
  EXPECT_EQ(proposed(index, {70}), std::vector<Draft>());
  EXPECT_EQ(proposed(index, {}), std::vector<Draft>());
  EXPECT_EQ(proposed(index, {1, 2, 3, 4}, 0), std::vector<Draft>());
}

TEST(SuffixIndex, VotesAndMultipliesShares) {
  SuffixIndex index;
  add_whole_text(index, {5, 1, 2, 9});
  add_whole_text(index, {5, 1, 2, 4});
  add_whole_text(index, {5, 1, 3, 9});
  add_whole_text(index, {5, 1, 2, 9});
  const auto drafts = proposed(index, {5, 1});
  ASSERT_EQ(drafts.size(), 2U);
  EXPECT_EQ(drafts[0], (Draft{2, 3 / 4.5})) << "3 of 4, two tokens in common";
  EXPECT_EQ(drafts[1].id, 9);
  EXPECT_DOUBLE_EQ(drafts[1].chance, 3 / 4.5 * 2 / (3 + 1.0 / 3));
}

TEST(SuffixIndex, OfEqualCountsTheMostRecentPlaceWins) {
  SuffixIndex index;
  const int64_t first = index.begin();
  const int64_t second = index.begin();
  append_all(index, second, {5, 1, 30});
  append_all(index, first, {5, 1, 20});  // later, though the text began earlier
  EXPECT_EQ(draft_ids(proposed(index, {5, 1})), (Ids{20}));
}

TEST(SuffixIndex, StopsWhereTheProductOfSharesIsBelowATenth) {
  SuffixIndex index;
  for (TokenId i = 0; i < 11; ++i) add_whole_text(index, {1, 100 + i, 7});
  EXPECT_EQ(proposed(index, {1}), std::vector<Draft>()) << "shares of an eleventh";
  add_whole_text(index, {1, 100, 7});
  const auto drafts = proposed(index, {1}, 2);
  ASSERT_EQ(drafts.size(), 2U);
  EXPECT_EQ(drafts[0], (Draft{100, 2.0 / 13}));
  EXPECT_EQ(drafts[1], (Draft{7, 2.0 / 13 * 2 / 2.5})) << "all that went on with it agree";
}

TEST(SuffixIndex, IsNotMatchedByTheEndOfItsOwnText) {
  SuffixIndex index;
  const int64_t text = add_whole_text(index, {1, 2, 3, 4});
  EXPECT_EQ(proposed(index, {1, 2, 3, 4}), std::vector<Draft>());
  append_all(index, text, {9, 3, 4});
  EXPECT_EQ(draft_ids(proposed(index, {2, 3, 4, 9, 3, 4}, 1)), (Ids{9}));
}

TEST(SuffixIndex, GoesOnBeyondTheEndOfATextThatRepeatsItself) {
  SuffixIndex index;
  add_whole_text(index, {1, 2, 3, 1, 2, 3, 1});
  EXPECT_EQ(draft_ids(proposed(index, {1, 2, 3, 1, 2, 3, 1}, 6)), (Ids{2, 3, 1, 2, 3, 1}));
}

TEST(SuffixIndex, ATextContinuesBehindWhatItIsBegunWith) {
  SuffixIndex index;
  const Ids prompt = {3, 1, 4, 1, 5, 9};
  const int64_t text = index.begin(prompt);
  EXPECT_EQ(index.size(text), 0);
  append_all(index, text, {2, 6, 5});
  EXPECT_EQ(index.size(text), 3);
  EXPECT_EQ(index.token(text, 1), 6);
  EXPECT_EQ(draft_ids(proposed(index, prompt)), (Ids{2, 6, 5}));
  EXPECT_EQ(proposed(index, {3, 1, 4}), std::vector<Draft>()) << "the prompt is no text of its own";
}

TEST(SuffixIndex, ReadsTokensBack) {
  SuffixIndex index;
  const int64_t a = index.begin(Ids(40, 7));
  const int64_t b = index.begin();
  for (TokenId i = 0; i < 129; ++i) {
    index.append(a, i);
    index.append(b, 1000 + i);
  }
  for (TokenId i = 0; i < 129; ++i) {
    EXPECT_EQ(index.token(a, i), i);
    EXPECT_EQ(index.token(b, i), 1000 + i);
  }
}

/// The rule, by a look at every place. Right as long as no ending occurs more than 32 times.
std::vector<Draft> proposed_by_looking(const std::vector<std::pair<int64_t, TokenId>>& appended,
                                       const Ids& context) {
  struct Place {
    int64_t text, index, when;
  };
  std::map<int64_t, Ids> texts;
  std::vector<Place> places;
  for (int64_t when = 0; when < std::ssize(appended); ++when) {
    Ids& text = texts[appended[when].first];
    places.push_back({appended[when].first, std::ssize(text), when});
    text.push_back(appended[when].second);
  }
  int64_t longest = 1;
  std::vector<Place> matches;
  for (const Place& place : places) {
    const Ids& text = texts[place.text];
    int64_t common = 0;
    while (common < std::min<int64_t>({12, std::ssize(context), place.index + 1}) &&
           text[place.index - common] == context[context.size() - 1 - common])
      ++common;
    if (place.index + 1 == std::ssize(text) || common < longest) continue;
    if (common > longest) matches.clear();
    longest = common;
    matches.push_back(place);
  }
  if (matches.empty()) return {};
  std::map<TokenId, std::pair<int64_t, int64_t>> votes;  // count, latest
  for (const Place& place : matches) {
    auto& [count, latest] = votes[texts[place.text][place.index + 1]];
    ++count;
    latest = place.when;
  }
  const auto best =
      std::ranges::max_element(votes, {}, [](const auto& entry) { return entry.second; });
  const double share = static_cast<double>(best->second.first) / std::ssize(matches);
  if (share < 0.1) return {};
  const double votes_and_one =
      static_cast<double>(std::ssize(matches)) + 1.0 / static_cast<double>(longest);
  return {{best->first, static_cast<double>(best->second.first) / votes_and_one}};
}

TEST(SuffixIndex, ProposesWhatALookAtEveryPlaceProposes) {
  uint64_t draw = 1;
  const auto drawn = [&draw](uint64_t below) { return splitmix64(++draw) % below; };
  int64_t num_long = 0;
  for (int round = 0; round < 20; ++round) {
    SuffixIndex index;
    for (int i = 0; i < 3; ++i) index.begin();
    std::vector<std::pair<int64_t, TokenId>> appended;
    std::vector<Ids> texts(3);
    for (int i = 0; i < 150; ++i) {
      const auto text = static_cast<int64_t>(drawn(3));
      Ids& ids = texts[text];
      // Now and then a passage of another text, at the rest of places one of 60 tokens.
      const Ids& other = texts[drawn(3)];
      const uint64_t length = drawn(6) == 0 && other.size() > 20 ? 15 : 1;
      const uint64_t from = length > 1 ? drawn(other.size() - length) : 0;
      for (uint64_t j = 0; j < length; ++j) {
        const TokenId id = length > 1 ? other[from + j] : static_cast<TokenId>(drawn(60));
        index.append(text, id);
        appended.emplace_back(text, id);
        ids.push_back(id);
      }
      const auto drafts = proposed(index, ids, 1);
      ASSERT_EQ(drafts, proposed_by_looking(appended, ids)) << round << " " << i;
      if (length > 1 && !drafts.empty()) ++num_long;
    }
  }
  EXPECT_GT(num_long, 100);
}

TEST(SuffixIndex, HasAtMost28BytesATokenOfTextWithRepetitions) {
  SuffixIndex index;
  const int64_t text = index.begin();
  uint64_t draw = 1;
  TokenId previous = 0;
  for (int i = 0; i < 100'000;
       ++i) {  // each token has four next ones: 6,000 pairs, many endings of four
    previous = static_cast<TokenId>(splitmix64(previous * 4 + splitmix64(++draw) % 4) % 1'500);
    index.append(text, previous);
  }
  EXPECT_LE(index.num_bytes(), 28 * 100'000);
}

}  // namespace
}  // namespace slime::engine
