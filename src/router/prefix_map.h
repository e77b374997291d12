#pragma once

/// Prefix map of a router: the prompt prefixes each engine has cached, as far as can be known from
/// outside.
///
/// Tokens are looked at in blocks of sixteen, as engines cache them, and the rest behind the last
/// whole block as one more: the samples of a group match to their last token, the next turn of a
/// conversation to the last block of the one before. Nothing is known of what engines evict;
/// entries that were not asked for in a while go here too.

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "core/sample.h"

namespace slime::router {

/// Names an engine of a router; none is used twice.
enum class EngineId : int64_t {};

class PrefixMap final {
 public:
  /// At most about twice `max_blocks` are remembered.
  explicit PrefixMap(std::size_t max_blocks) : max_blocks_(max_blocks) {}

  /// The engine has computed these tokens, or is going to.
  void remember(std::span<const TokenKey> tokens, EngineId engine);

  struct Match {
    EngineId engine;
    int64_t num_tokens = 0;
  };
  /// The engines that have a beginning of `tokens`, each with the length of the longest.
  std::vector<Match> match(std::span<const TokenKey> tokens);

  /// It is gone.
  void forget(EngineId engine);
  void clear();

 private:
  using Block = uint64_t;  // a hash of all tokens up to its end
  using Engines = std::vector<EngineId>;

  Engines& entry(Block block);
  const Engines* find(Block block);

  const std::size_t max_blocks_;
  std::unordered_map<Block, Engines> recent_;  // asked for since old_ was recent_
  std::unordered_map<Block, Engines> old_;
};

}  // namespace slime::router
