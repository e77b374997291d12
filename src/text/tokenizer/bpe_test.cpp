#include "text/tokenizer/bpe.h"

#include <gtest/gtest.h>

#include "core/random.h"

namespace slime::text {
namespace {

/// Letters a to d and a random set of merges of what there is so far.
struct Model {
  Vocabulary vocabulary;
  std::vector<Merge> merges;

  explicit Model(uint64_t seed) {
    for (const char* letter : {"a", "b", "c", "d"}) vocabulary.add(vocabulary.end_id(), letter);
    for (uint64_t counter = 0; merges.size() < 60; counter += 2) {
      const auto pick = [&](uint64_t i) {
        return static_cast<TokenId>(uniform(seed, 0, i) * vocabulary.end_id());
      };
      const TokenId left = pick(counter), right = pick(counter + 1);
      const std::string joined = std::string(vocabulary[left]) + std::string(vocabulary[right]);
      if (joined.size() > 9 || !vocabulary.add(vocabulary.end_id(), joined)) continue;
      merges.push_back(
          {left, right, static_cast<uint32_t>(merges.size()), vocabulary.end_id() - 1});
    }
  }
};

std::vector<TokenId> encode(const Bpe& bpe, std::string_view word) {
  std::vector<TokenId> ids;
  bpe.encode(word, ids);
  return ids;
}

/// The definition: look for the lowest rank, join its leftmost pair, repeat.
std::vector<TokenId> encode_slowly(const Model& model, std::string_view word) {
  std::vector<TokenId> ids;
  for (const char letter : word) ids.push_back(letter - 'a');
  for (;;) {
    const Merge* best = nullptr;
    std::size_t at = 0;
    for (std::size_t i = 0; i + 1 < ids.size(); ++i) {
      for (const Merge& merge : model.merges) {
        if (merge.left == ids[i] && merge.right == ids[i + 1] &&
            (best == nullptr || merge.rank < best->rank)) {
          best = &merge;
          at = i;
        }
      }
    }
    if (best == nullptr) return ids;
    ids[at] = best->result;
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
}

std::string random_word(uint64_t stream, std::size_t length) {
  std::string word;
  for (std::size_t i = 0; i < length; ++i)
    word += static_cast<char>('a' + static_cast<int>(uniform(3, stream, i) * 4));
  return word;
}

TEST(Bpe, EveryWordLengthGivesWhatTheDefinitionGives) {
  for (uint64_t seed = 0; seed < 5; ++seed) {
    const Model model(seed);
    const Bpe bpe(model.vocabulary, model.merges, {});
    for (const std::size_t length : {1, 2, 3, 21, 22, 23, 63, 64, 65, 127, 200}) {
      for (const std::string& word : {random_word(seed, length), std::string(length, 'a')}) {
        EXPECT_EQ(encode(bpe, word), encode_slowly(model, word)) << word;
        EXPECT_EQ(encode(bpe, word), encode_slowly(model, word)) << word << ", the second time";
      }
    }
  }
}

TEST(Bpe, TwoModelsOnOneThreadDoNotShareWords) {
  const Model one(1), two(2);
  const Bpe first(one.vocabulary, one.merges, {}), second(two.vocabulary, two.merges, {});
  const std::string word = "abcdabcd";
  for (int turn = 0; turn < 3; ++turn) {
    EXPECT_EQ(encode(first, word), encode_slowly(one, word));
    EXPECT_EQ(encode(second, word), encode_slowly(two, word));
  }
}

TEST(Bpe, IgnoreMergesTakesAWholeWordFirst) {
  Vocabulary vocabulary;
  for (const char* token : {"a", "b", "ab", "aba"}) vocabulary.add(vocabulary.end_id(), token);
  const std::vector<Merge> merges = {{0, 1, 0, 2}};
  EXPECT_EQ(encode(Bpe(vocabulary, merges, {}), "aba"), (std::vector<TokenId>{2, 0}));
  EXPECT_EQ(encode(Bpe(vocabulary, merges, {.ignore_merges = true}), "aba"),
            (std::vector<TokenId>{3}));
}

TEST(Bpe, UnknownCharactersBecomeBytesOrUnknownTokensOrNothing) {
  Vocabulary vocabulary;
  for (const char* token : {"<unk>", "a", "<0xC3>", "<0xA9>"})
    vocabulary.add(vocabulary.end_id(), token);
  EXPECT_EQ(encode(Bpe(vocabulary, {}, {}), "a??a"), (std::vector<TokenId>{1, 1}));
  EXPECT_EQ(encode(Bpe(vocabulary, {}, {.unk_id = 0}), "a??a"), (std::vector<TokenId>{1, 0, 0, 1}));
  EXPECT_EQ(encode(Bpe(vocabulary, {}, {.fuse_unk = true, .unk_id = 0}), "a??a"),
            (std::vector<TokenId>{1, 0, 1}));
  EXPECT_EQ(encode(Bpe(vocabulary, {}, {.byte_fallback = true, .unk_id = 0}), "a\u00E9?"),
            (std::vector<TokenId>{1, 2, 3, 0}));
}

}  // namespace
}  // namespace slime::text
