#include "router/prefix_map.h"

#include <algorithm>
#include <utility>

#include "core/splitmix64.h"

namespace slime::router {
namespace {

constexpr std::size_t kBlockTokens = 16;

/// Calls `take` with the hash of the tokens up to the end of each block and how many they are,
/// until it returns false.
template <typename Fn>
void each_block(std::span<const TokenKey> tokens, const Fn& take) {
  uint64_t hash = 0;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    hash = splitmix64(hash ^ tokens[i]);
    const bool ends_block = (i + 1) % kBlockTokens == 0 || i + 1 == tokens.size();
    // The length is in it: the rest behind the last block is no beginning of a longer one.
    if (ends_block && !take(splitmix64(hash + i + 1), static_cast<int64_t>(i + 1))) return;
  }
}

}  // namespace

PrefixMap::Engines& PrefixMap::entry(Block block) {
  if (const auto found = recent_.find(block); found != recent_.end()) return found->second;
  if (recent_.size() >= max_blocks_) old_ = std::exchange(recent_, {});
  Engines& engines = recent_[block];
  if (const auto found = old_.find(block); found != old_.end()) engines = std::move(found->second);
  return engines;
}

const PrefixMap::Engines* PrefixMap::find(Block block) {
  if (!recent_.contains(block) && !old_.contains(block)) return nullptr;
  return &entry(block);
}

void PrefixMap::remember(std::span<const TokenKey> tokens, EngineId engine) {
  each_block(tokens, [&](Block block, int64_t) {
    Engines& engines = entry(block);
    if (std::ranges::find(engines, engine) == engines.end()) engines.push_back(engine);
    return true;
  });
}

std::vector<PrefixMap::Match> PrefixMap::match(std::span<const TokenKey> tokens) {
  std::vector<Match> matches;
  bool is_first = true;
  each_block(tokens, [&](Block block, int64_t length) {
    const Engines* engines = find(block);
    if (engines == nullptr) return false;
    if (std::exchange(is_first, false))
      for (const EngineId engine : *engines) matches.push_back({engine, 0});
    bool goes_on = false;
    for (Match& match : matches) {
      // Without a gap.
      const bool had_all_before = length - match.num_tokens <= static_cast<int64_t>(kBlockTokens);
      if (!had_all_before || std::ranges::find(*engines, match.engine) == engines->end()) continue;
      match.num_tokens = length;
      goes_on = true;
    }
    return goes_on;
  });
  return matches;
}

void PrefixMap::forget(EngineId engine) {
  for (auto* blocks : {&recent_, &old_}) {
    for (auto& [block, engines] : *blocks) std::erase(engines, engine);
  }
}

void PrefixMap::clear() {
  recent_.clear();
  old_.clear();
}

}  // namespace slime::router
