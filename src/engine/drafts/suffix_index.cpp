#include "engine/drafts/suffix_index.h"

#include <algorithm>

#include "core/error.h"

namespace slime::engine {
namespace {

constexpr double kLeastShares = 0.1;
/// One at the context; more where all matching places have come to the end of their texts, such as a text that
/// repeats itself to its own end.
constexpr int kMostMatches = 3;

Ending ending_of_last(std::span<const TokenId> tokens, int64_t length) {
  const auto back = [&](std::size_t i) {
    return static_cast<uint64_t>(static_cast<uint32_t>(tokens[tokens.size() - i]));
  };
  Ending ending{.late = back(1)};
  if (length >= 2) ending.late |= back(2) << 32;
  if (length >= 4) ending.early = back(3) | back(4) << 32;
  return ending;
}

}  // namespace

SuffixIndex::Recent::Recent(std::span<const TokenId> context)
    : size(std::min<int64_t>(kContext, std::ssize(context))) {
  std::ranges::copy(context.last(size), tokens.end() - size);
}

void SuffixIndex::Recent::push(TokenId id) {
  std::copy(tokens.begin() + 1, tokens.end(), tokens.begin());
  tokens.back() = id;
  size = std::min(size + 1, kContext);
}

SuffixIndex::SuffixIndex() : blocks_(1) {}

int64_t SuffixIndex::begin(std::span<const TokenId> before) {
  Text& text = texts_.emplace_back();
  text.num_before = std::min<int64_t>(kContext, std::ssize(before));
  TextPlace last = 0;
  for (const TokenId id : before.last(text.num_before)) last = push(text, id);
  if (last != 0) link(last, text.size);
  return std::ssize(texts_) - 1;
}

void SuffixIndex::append(int64_t text, TokenId id) {
  Text& grown = texts_[text];
  const TextPlace place = push(grown, id);
  link(place, grown.size);
}

int64_t SuffixIndex::size(int64_t text) const {
  return texts_[text].size - texts_[text].num_before;
}

TokenId SuffixIndex::token(int64_t text, int64_t index) const {
  const int64_t at = texts_[text].num_before + index;
  return blocks_[texts_[text].blocks[at / kBlock]]->tokens[at % kBlock];
}

bool SuffixIndex::is_full() const {
  return std::ssize(blocks_) + 1 >= (int64_t{1} << kPlaceBits) / kBlock;
}

int64_t SuffixIndex::num_bytes() const {
  constexpr int64_t kAllocation = 16;  // what the allocator adds to a block
  int64_t bytes = std::ssize(blocks_) * static_cast<int64_t>(sizeof(Block) + kAllocation +
                                                             sizeof(void*) + sizeof(uint32_t));
  bytes += std::ssize(texts_) * static_cast<int64_t>(sizeof(Text));
  for (const EndingTable& table : tables_) bytes += table.num_bytes();
  return bytes;
}

TextPlace SuffixIndex::next_of(TextPlace place) const {
  const Block& block = block_of(place);
  const uint32_t offset = place % kBlock + 1;
  if (offset < block.size) return place + 1;
  return offset == kBlock ? block.after * static_cast<uint32_t>(kBlock) : 0;
}

TextPlace SuffixIndex::push(Text& text, TokenId id) {
  if (text.size % kBlock == 0) {
    check(!is_full(), "a full suffix index gets no more tokens");
    const auto number = static_cast<uint32_t>(blocks_.size());
    Block& block = *blocks_.emplace_back(std::make_unique<Block>());
    if (!text.blocks.empty()) {
      block.before = text.blocks.back();
      blocks_[block.before]->after = number;
    }
    text.blocks.push_back(number);
  }
  ++text.size;
  Block& block = *blocks_[text.blocks.back()];
  block.tokens[block.size] = id;
  return text.blocks.back() * static_cast<uint32_t>(kBlock) + block.size++;
}

void SuffixIndex::link(TextPlace place, int64_t num_behind_it) {
  Block& block = *blocks_[place / kBlock];
  for (std::size_t level = 0; level < kEndings.size(); ++level) {
    const int64_t length = kEndings[level];
    if (num_behind_it < length) continue;  // blocks begin with no links
    const auto ending_of = [this, length](TextPlace other) { return ending_at(other, length); };
    block.earlier[level][place % kBlock] =
        tables_[level].exchange(ending_at(place, length), place, ending_of);
  }
}

Ending SuffixIndex::ending_at(TextPlace place, int64_t length) const {
  const Block& block = block_of(place);
  const int64_t offset = place % kBlock;
  if (offset + 1 >= length)
    return ending_of_last(std::span(block.tokens).first(offset + 1), length);
  std::array<TokenId, 4> last;  // of two blocks
  const Block& before = *blocks_[block.before];
  for (int64_t i = 0; i < length; ++i)
    last[3 - i] = i <= offset ? block.tokens[offset - i] : before.tokens[kBlock + offset - i];
  return ending_of_last(last, length);
}

int64_t SuffixIndex::common_ending(std::span<const TokenId> context, TextPlace place) const {
  const Block* block = &block_of(place);
  int64_t offset = place % kBlock;
  int64_t length = 0;
  for (; length < std::ssize(context); ++length) {
    if (offset < 0) {
      if (block->before == 0) break;
      block = blocks_[block->before].get();
      offset = kBlock - 1;
    }
    if (block->tokens[offset--] != context[context.size() - 1 - length]) break;
  }
  return length;
}

SuffixIndex::Matches SuffixIndex::longest_matches(std::span<const TokenId> context) const {
  Matches matches;
  for (std::size_t level = 0; level < kEndings.size() && matches.size == 0; ++level) {
    const int64_t length = kEndings[level];
    if (std::ssize(context) < length) continue;
    const auto ending_of = [this, length](TextPlace other) { return ending_at(other, length); };
    TextPlace place = tables_[level].find(ending_of_last(context, length), ending_of);
    for (int64_t i = 0; i < kLooked && place != 0; ++i) {
      const TextPlace next =
          next_of(place);  // the end of a text, as of the context's own, has none
      if (next != 0) {
        const int64_t common = common_ending(context, place);
        if (common > matches.length) matches.size = 0;
        matches.length = std::max(matches.length, common);
        if (common == matches.length) matches.next[matches.size++] = next;
      }
      place = block_of(place).earlier[level][place % kBlock];
    }
  }
  return matches;
}

void SuffixIndex::propose(std::span<const TokenId> context, int64_t most,
                          std::vector<Draft>& out) const {
  out.clear();
  Recent recent(context);
  Matches matches;
  double shares = 1;
  double chance = 1;
  for (int num_matches = 0; std::ssize(out) < most;) {
    if (matches.size == 0) {
      if (++num_matches > kMostMatches) return;
      matches = longest_matches(recent.all());
      if (matches.size == 0) return;
    }
    std::array<TokenId, kLooked> ids;
    std::array<int64_t, kLooked> votes;
    int64_t num_ids = 0;
    for (int64_t i = 0; i < matches.size; ++i) {
      const TokenId id = token_at(matches.next[i]);
      const auto known = std::find(ids.begin(), ids.begin() + num_ids, id) - ids.begin();
      if (known == num_ids) {
        ids[num_ids] = id;
        votes[num_ids++] = 0;
      }
      ++votes[known];
    }
    // Of equal counts the first, which the most recent place voted for.
    const auto best = std::max_element(votes.begin(), votes.begin() + num_ids) - votes.begin();
    const auto num_best = static_cast<double>(votes[best]);
    const auto num_votes = static_cast<double>(matches.size);
    shares *= num_best / num_votes;
    if (shares < kLeastShares) return;
    chance *= num_best / (num_votes + 1 / static_cast<double>(matches.length));
    out.push_back({.id = ids[best], .chance = chance});
    recent.push(ids[best]);
    int64_t num_left = 0;
    for (int64_t i = 0; i < matches.size; ++i) {
      if (token_at(matches.next[i]) != ids[best]) continue;
      if (const TextPlace next = next_of(matches.next[i]); next != 0)
        matches.next[num_left++] = next;
    }
    matches.size = num_left;
    ++matches.length;
  }
}

}  // namespace slime::engine
