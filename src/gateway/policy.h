#pragma once

/// Load-balancing policies: which of several workers a request goes to. Names are those of SGLang's
/// router.

#include <cstdint>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gateway/request_facts.h"
#include "router/prefix_map.h"

namespace slime::gateway {

using WorkerId = router::EngineId;

enum class PolicyKind {
  kRandom,
  kRoundRobin,
  kPowerOfTwo,         // the less loaded of two drawn at random
  kLeastLoad,          // the fewest requests under way
  kCacheAware,         // who has most of the prompt, unless it is much busier than others
  kConsistentHashing,  // all requests of a routing key to one worker; least load without a key
};

struct PolicyConfig {
  PolicyKind kind = PolicyKind::kCacheAware;
  /// kCacheAware: so much of the prompt has to be known for it to count.
  double cache_threshold = 0.3;
  /// kCacheAware: load alone decides where most and least loaded differ by more than this, and by
  /// more than this factor.
  int64_t balance_abs_threshold = 64;
  double balance_rel_threshold = 1.5;
  /// kCacheAware: bytes of prompts that are remembered, about.
  std::size_t max_tree_bytes = std::size_t{64} << 20;
};

/// "cache_aware" and the like; nothing for words that name none.
std::optional<PolicyKind> policy_of(std::string_view name);
/// "random, round_robin, ...".
std::string policy_names();
std::string_view name_of(PolicyKind kind);

struct Candidate {
  WorkerId id{};
  int64_t load = 0;    // requests under way
  uint64_t place = 0;  // hash_of() its address: for kConsistentHashing
};

/// The same in every process.
uint64_t hash_of(std::string_view text);

class Policy final {
 public:
  Policy(const PolicyConfig& config, uint64_t seed);

  /// The place among `candidates`, of which there is at least one, of who gets the request; it is
  /// remembered that it does.
  std::size_t choose(std::span<const Candidate> candidates, const RequestFacts& facts);
  void forget(WorkerId worker);

 private:
  std::size_t least_loaded(std::span<const Candidate> candidates);
  std::size_t of_two(std::span<const Candidate> candidates);
  std::size_t with_most_of_prompt(std::span<const Candidate> candidates, std::string_view prompt);
  std::size_t draw(std::size_t count);

  const PolicyConfig config_;
  std::mt19937_64 random_;
  uint64_t num_chosen_ = 0;
  router::PrefixMap prefixes_;
};

}  // namespace slime::gateway
