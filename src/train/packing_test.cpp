#include "train/packing.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace slime::train {
namespace {

using Tokens = std::vector<TokenId>;

std::vector<int64_t> numbers(const Tensor& x) {
  return {x.const_data_ptr<int64_t>(), x.const_data_ptr<int64_t>() + x.numel()};
}

/// The tokens from the root of the forest to row `row`.
Tokens history(const PackedBatch& batch, int64_t row) {
  const auto& segments = batch.tokens.segments;
  auto in =
      std::find_if(segments.begin(), segments.end(), [&](const auto& s) { return row < s.end; });
  Tokens reversed;
  const auto ids = numbers(batch.tokens.ids_T);
  for (int64_t end = row + 1;; end = in->end) {
    for (int64_t r = end - 1; r >= in->begin; --r) reversed.push_back(static_cast<TokenId>(ids[r]));
    if (in->parent < 0) break;
    in = segments.begin() + in->parent;
  }
  return {reversed.rbegin(), reversed.rend()};
}

/// What packing has to guarantee, whatever it shares: the row that scores a token has seen exactly
/// what came before it.
void expect_every_token_sees_its_own_past(const std::vector<Tokens>& texts, int64_t prompt,
                                          const PackedBatch& batch) {
  const auto rows = numbers(batch.row_S), targets = numbers(batch.target_S),
             scored = numbers(batch.scored_T);
  const auto positions = numbers(batch.tokens.rotary_row_T);
  std::size_t t = 0;
  for (const Tokens& text : texts) {
    for (std::size_t p = prompt; p < text.size(); ++p, ++t) {
      EXPECT_EQ(targets[scored[t]], text[p]);
      EXPECT_EQ(history(batch, rows[scored[t]]), Tokens(text.begin(), text.begin() + p));
      EXPECT_EQ(positions[rows[scored[t]]], static_cast<int64_t>(p) - 1);
    }
  }
  EXPECT_EQ(t, scored.size());
  int64_t end = 0;
  for (const auto& segment : batch.tokens.segments) {
    EXPECT_EQ(segment.begin, end);
    EXPECT_LT(segment.begin, segment.end);
    end = segment.end;
  }
  EXPECT_EQ(end, batch.tokens.num_tokens());
}

PackedBatch pack_texts(const std::vector<Tokens>& texts, int64_t prompt,
                       const PackingOptions& options) {
  std::vector<Sequence> sequences;
  for (const Tokens& text : texts) sequences.push_back({text, prompt});
  return pack(sequences, options);
}

TEST(Packing, ComputesASharedPromptOnceAndASharedTokenToo) {
  const std::vector<Tokens> texts{{5, 6, 7, 8, 9}, {5, 6, 7, 8, 4}, {5, 6, 7, 1}};
  const PackedBatch batch = pack_texts(texts, 3, {.min_saved_tokens = 1});
  EXPECT_EQ(batch.tokens.num_tokens(), 3 + 1 + 2 + 1);
  EXPECT_EQ(batch.row_S.size(0), 4);  // 8 (twice asked for), 9, 4, 1
  EXPECT_EQ(batch.scored_T.size(0), 5);
  expect_every_token_sees_its_own_past(texts, 3, batch);
}

TEST(Packing, KeepsSegmentsFewWhenLittleIsSaved) {
  const std::vector<Tokens> texts{{5, 6, 7, 8, 9}, {5, 6, 7, 8, 4}, {5, 6, 7, 1}};
  const PackedBatch batch = pack_texts(texts, 3, {.min_saved_tokens = 6});
  EXPECT_EQ(batch.tokens.segments.size(), 4u);  // the prompt saves 6, the common 8 only 1
  expect_every_token_sees_its_own_past(texts, 3, batch);
  EXPECT_EQ(pack_texts(texts, 3, {.min_saved_tokens = 7}).tokens.segments.size(), 3u);
}

TEST(Packing, WithoutSharingEachSequenceIsASegmentInTheGivenOrder) {
  const std::vector<Tokens> texts{{9, 9, 9}, {5, 6}, {9, 9, 9}};
  const PackedBatch batch = pack_texts(texts, 1, {.share_prefixes = false});
  EXPECT_EQ(numbers(batch.tokens.ids_T), (std::vector<int64_t>{9, 9, 9, 5, 6, 9, 9, 9}));
  EXPECT_EQ(batch.tokens.segments.size(), 3u);
  expect_every_token_sees_its_own_past(texts, 1, batch);
}

TEST(Packing, HandlesEqualSequencesPrefixesOfOthersAndEmptyResponses) {
  const std::vector<Tokens> texts{{1, 2}, {1, 2, 3}, {1, 2, 3}, {1, 2, 3, 4, 5}, {1, 2}, {7, 8, 9}};
  for (const int64_t saved : {1, 2, 3, 100}) {
    expect_every_token_sees_its_own_past(texts, 2,
                                         pack_texts(texts, 2, {.min_saved_tokens = saved}));
  }
  EXPECT_EQ(pack_texts(texts, 2, {.min_saved_tokens = 1}).tokens.num_tokens(), 5 + 3);
}

TEST(Packing, HoldsForManyRandomTextsOfASmallAlphabet) {
  at::manual_seed(3);
  for (int round = 0; round < 50; ++round) {
    std::vector<Tokens> texts;
    for (int i = 0; i < 12; ++i) {
      Tokens text{1};
      const Tensor rest = at::randint(0, 2, {at::randint(1, 20, {1}).item<int64_t>()}, at::kLong);
      for (const int64_t id : numbers(rest)) text.push_back(static_cast<TokenId>(id));
      texts.push_back(text);
    }
    for (const int64_t saved : {1, 4, 16}) {
      expect_every_token_sees_its_own_past(texts, 1,
                                           pack_texts(texts, 1, {.min_saved_tokens = saved}));
    }
  }
}

TEST(Packing, ScoresOtherTargetsByTheSameRows) {
  const Tokens first{5, 6, 7, 8}, second{5, 6, 7, 9}, targets{0, 0, 8}, others{0, 0, 9};
  const auto asking = [](const Tokens& text, const Tokens& asked) {
    return Sequence{.tokens = text, .prompt_length = 1, .targets = asked};
  };
  const std::vector<Sequence> sequences{
      asking(first, targets), {first, 1}, asking(second, others), asking(first, targets)};
  const PackedBatch batch = pack(sequences, {.min_saved_tokens = 1});
  EXPECT_EQ(batch.tokens.num_tokens(), 3 + 2);
  const auto rows = numbers(batch.row_S), scored = numbers(batch.scored_T);
  std::vector<int64_t> asked, by;
  for (const int64_t s : scored) {
    asked.push_back(numbers(batch.target_S)[s]);
    by.push_back(rows[s]);
  }
  EXPECT_EQ(asked, (std::vector<int64_t>{0, 0, 8, 6, 7, 8, 0, 0, 9, 0, 0, 8}));
  EXPECT_EQ(by, (std::vector<int64_t>{0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2}));
  // Of the three that ask for others the zeros are scored once, and so is 8.
  EXPECT_EQ(rows.size(), 4U + 3U);
}

TEST(Packing, BinsKeepSiblingsTogetherAndCountSharedTokensOnce) {
  const Tokens a1{1, 1, 1, 1, 2}, a2{1, 1, 1, 1, 3}, b1{5, 5, 5, 5, 2}, b2{5, 5, 5, 5, 3};
  const std::vector<Sequence> sequences{{a1, 4}, {b1, 4}, {a2, 4}, {b2, 4}};
  EXPECT_EQ(pack_into_bins(sequences, 6), (std::vector<std::vector<int64_t>>{{0, 2}, {1, 3}}));
  EXPECT_EQ(pack_into_bins(sequences, 12), (std::vector<std::vector<int64_t>>{{0, 1, 2, 3}}));
  EXPECT_EQ(pack_into_bins(sequences, 1).size(), 4u);
}

TEST(Packing, SharingPaysWhereWhatItSavesCostsMoreThanItsLevels) {
  // Two prompts of 6 tokens that begin with the same 4, with four responses of 10 each.
  std::vector<Tokens> texts;
  for (TokenId i = 0; i < 8; ++i) {
    Tokens text{1, 2, 3, 4, 5 + i / 4, 7};
    for (TokenId t = 0; t < 10; ++t) text.push_back(100 * (i + 1) + t);
    texts.push_back(std::move(text));
  }
  std::vector<Sequence> sequences;
  for (const Tokens& text : texts) sequences.push_back({text, 6});
  // 128 tokens in rows 4 + 2 x 2 + 8 x 10: 40 are saved. The second run looks at the first one, and
  // each response at both: 4 + 160.
  PackingOptions options{.share_prefixes = true, .min_saved_tokens = 1};
  EXPECT_TRUE(sharing_pays(sequences, options));
  options.level_cost = 0.99 * 40 / 164;
  EXPECT_TRUE(sharing_pays(sequences, options));
  options.level_cost = 1.01 * 40 / 164;
  EXPECT_FALSE(sharing_pays(sequences, options));
}

/// A model that rotates sequences of more than 4 tokens by the rows of its tables from 100 on.
Sequence beyond_the_switch(const Tokens& text, int64_t prompt, bool as_sampled) {
  return {.tokens = text,
          .prompt_length = prompt,
          .rotary_offset = 100,
          .num_sampled_short = as_sampled ? 4 : 0};
}

TEST(Packing, ScoresWhatWasSampledBeforeTheSwitchByRowsBeforeIt) {
  const Tokens text{5, 6, 7, 8, 9, 3};
  const std::vector<Sequence> sequences{beyond_the_switch(text, 2, /*as_sampled=*/true)};
  const PackedBatch batch = pack(sequences, {});
  // 5 6 7 8 with the short rotation, then all six with the long one.
  EXPECT_EQ(batch.tokens.num_tokens(), 4 + 6);
  const auto rows = numbers(batch.row_S), targets = numbers(batch.target_S),
             scored = numbers(batch.scored_T), positions = numbers(batch.tokens.rotary_row_T);
  ASSERT_EQ(scored.size(), 4u);
  const std::vector<int64_t> expected{1, 2, 3, 104};  // 7, 8 and 9 are short, 3 is long
  for (std::size_t t = 0; t < 4; ++t) {
    EXPECT_EQ(targets[scored[t]], text[2 + t]);
    EXPECT_EQ(positions[rows[scored[t]]], expected[t]);
    EXPECT_EQ(history(batch, rows[scored[t]]), Tokens(text.begin(), text.begin() + 2 + t));
  }
  EXPECT_EQ(batch.lengths, std::vector<int64_t>{6});
  for (const int64_t row : numbers(batch.row_L)) EXPECT_GE(positions[row], 100);
}

TEST(Packing, OfASequenceThatWasNotSampledHasOneRotation) {
  const Tokens text{5, 6, 7, 8, 9, 3};
  const std::vector<Sequence> sequences{beyond_the_switch(text, 2, /*as_sampled=*/false)};
  const PackedBatch batch = pack(sequences, {});
  EXPECT_EQ(numbers(batch.tokens.rotary_row_T),
            (std::vector<int64_t>{100, 101, 102, 103, 104, 105}));
}

TEST(Packing, SharesTokensWhereTheirKeysAreTheSame) {
  const auto picture = [](uint64_t key) {
    return std::make_shared<Attachment>(Attachment{.key = key, .type = "image/png"});
  };
  const Tokens first{5, 0, 0, 0, 7, 8}, second{5, 0, 0, 0, 7, 9};
  const std::vector<MediaSpan> one{{1, 4, picture(11)}}, other{{1, 4, picture(12)}};
  const PackingOptions options{.min_saved_tokens = 1};
  const auto pack_two = [&](const std::vector<MediaSpan>& of_second) {
    return pack(std::vector<Sequence>{{first, 5, one}, {second, 5, of_second}}, options);
  };
  const PackedBatch same = pack_two(one), apart = pack_two(other);
  EXPECT_EQ(same.tokens.num_tokens(), 5 + 1 + 1);
  ASSERT_EQ(same.media.size(), 1u) << "its rows are made once";
  EXPECT_EQ(same.media[0].row, 1);
  EXPECT_EQ(same.media[0].count, 3);
  EXPECT_EQ(apart.tokens.num_tokens(), 1 + 5 + 5) << "the text before the spans alone";
  ASSERT_EQ(apart.media.size(), 2u);
  EXPECT_NE(apart.media[0].what->key, apart.media[1].what->key);
  EXPECT_EQ(apart.media[1].row, apart.media[0].row + 5);
  EXPECT_EQ(common_prefix({first, 5, one}, {second, 5, other}), 1);
  EXPECT_EQ(common_prefix({first, 5, one}, {second, 5}), 1);
}

TEST(Packing, SharesTokensWhereTheyRotateAlike) {
  const Tokens brief{5, 6, 7, 1}, text{5, 6, 7, 8, 9, 3};
  const std::vector<Sequence> sequences{{.tokens = brief, .prompt_length = 3},
                                        beyond_the_switch(text, 3, /*as_sampled=*/true)};
  const PackedBatch batch = pack(sequences, {.min_saved_tokens = 1});
  // 5 6 7 once for the brief one and the short side of the other, 1, 8, and the long side.
  EXPECT_EQ(batch.tokens.num_tokens(), 3 + 1 + 1 + 6);
  EXPECT_EQ(common_prefix(sequences[0], sequences[1]), 0);
}

}  // namespace
}  // namespace slime::train
