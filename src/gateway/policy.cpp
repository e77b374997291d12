#include "gateway/policy.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "core/error.h"
#include "core/splitmix64.h"

namespace slime::gateway {
namespace {

constexpr std::size_t kBytesPerKey = sizeof(TokenKey);
constexpr std::size_t kKeysPerBlock = 16;  // of router::PrefixMap

constexpr std::array<std::pair<std::string_view, PolicyKind>, 6> kNames{{
    {"random", PolicyKind::kRandom},
    {"round_robin", PolicyKind::kRoundRobin},
    {"power_of_two", PolicyKind::kPowerOfTwo},
    {"least_load", PolicyKind::kLeastLoad},
    {"cache_aware", PolicyKind::kCacheAware},
    {"consistent_hashing", PolicyKind::kConsistentHashing},
}};

/// Bytes in the form in which the map compares prompts: eight to a key.
std::vector<TokenKey> keys_of(std::string_view text) {
  const std::size_t rest = text.size() % kBytesPerKey == 0 ? 0 : 1;
  std::vector<TokenKey> keys(text.size() / kBytesPerKey + rest, 0);
  if (!text.empty()) std::memcpy(keys.data(), text.data(), text.size());
  return keys;
}

/// Rendezvous hashing: each key has an order of all workers, and the first of those that are there
/// has it. Who comes or goes moves its own keys alone, and routers beside one another agree.
std::size_t first_of_key(std::span<const Candidate> candidates, std::string_view key) {
  const uint64_t hash = hash_of(key);
  const auto rank = [hash](const Candidate& each) { return splitmix64(hash ^ each.place); };
  const auto best = std::ranges::max_element(candidates, {}, rank);
  return static_cast<std::size_t>(best - candidates.begin());
}

}  // namespace

/// FNV-1a.
uint64_t hash_of(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return splitmix64(hash);
}

std::optional<PolicyKind> policy_of(std::string_view name) {
  for (const auto& [known, kind] : kNames)
    if (known == name) return kind;
  return std::nullopt;
}

std::string policy_names() {
  std::string names;
  for (const auto& [known, kind] : kNames)
    names += (names.empty() ? "" : ", ") + std::string(known);
  return names;
}

std::string_view name_of(PolicyKind kind) {
  for (const auto& [known, each] : kNames)
    if (each == kind) return known;
  throw BugError("each policy has a name");
}

Policy::Policy(const PolicyConfig& config, uint64_t seed)
    : config_(config),
      random_(seed),
      // Of the map's two halves each may have so many blocks.
      prefixes_(
          std::max<std::size_t>(1, config.max_tree_bytes / (2 * kBytesPerKey * kKeysPerBlock))) {}

std::size_t Policy::draw(std::size_t count) {
  return std::uniform_int_distribution<std::size_t>(0, count - 1)(random_);
}

/// Of equals one by lot: the first would get all requests of a quiet time.
std::size_t Policy::least_loaded(std::span<const Candidate> candidates) {
  const int64_t least = std::ranges::min(candidates, {}, &Candidate::load).load;
  std::vector<std::size_t> best;
  for (std::size_t i = 0; i < candidates.size(); ++i)
    if (candidates[i].load == least) best.push_back(i);
  return best[draw(best.size())];
}

std::size_t Policy::of_two(std::span<const Candidate> candidates) {
  if (candidates.size() == 1) return 0;
  const std::size_t first = draw(candidates.size());
  const std::size_t other = (first + 1 + draw(candidates.size() - 1)) % candidates.size();
  return candidates[first].load <= candidates[other].load ? first : other;
}

std::size_t Policy::with_most_of_prompt(std::span<const Candidate> candidates,
                                        std::string_view prompt) {
  const auto [least, most] = std::ranges::minmax_element(candidates, {}, &Candidate::load);
  const bool is_uneven = most->load - least->load > config_.balance_abs_threshold &&
                         static_cast<double>(most->load) >
                             static_cast<double>(least->load) * config_.balance_rel_threshold;
  const std::vector<TokenKey> keys = keys_of(prompt);
  std::optional<std::size_t> chosen;
  if (!is_uneven && !keys.empty()) {
    auto num_known =
        static_cast<int64_t>(config_.cache_threshold * static_cast<double>(keys.size()));
    for (const auto& match : prefixes_.match(keys)) {
      const auto place = std::ranges::find(candidates, match.engine, &Candidate::id);
      if (place == candidates.end()) continue;
      const auto index = static_cast<std::size_t>(place - candidates.begin());
      const bool is_tie = chosen && match.num_tokens == num_known;
      if (match.num_tokens < num_known || match.num_tokens == 0) continue;
      if (is_tie && candidates[index].load >= candidates[*chosen].load) continue;
      chosen = index;
      num_known = match.num_tokens;
    }
  }
  const std::size_t index = chosen ? *chosen : least_loaded(candidates);
  prefixes_.remember(keys, candidates[index].id);
  return index;
}

std::size_t Policy::choose(std::span<const Candidate> candidates, const RequestFacts& facts) {
  check(!candidates.empty(), "somebody can be chosen");
  if (!facts.session.empty()) return first_of_key(candidates, facts.session);
  switch (config_.kind) {
    case PolicyKind::kRandom:
      return draw(candidates.size());
    case PolicyKind::kRoundRobin:
      return num_chosen_++ % candidates.size();
    case PolicyKind::kPowerOfTwo:
      return of_two(candidates);
    case PolicyKind::kLeastLoad:
      return least_loaded(candidates);
    case PolicyKind::kCacheAware:
      return with_most_of_prompt(candidates, facts.prompt);
    case PolicyKind::kConsistentHashing:
      return facts.routing_key.empty() ? least_loaded(candidates)
                                       : first_of_key(candidates, facts.routing_key);
  }
  throw BugError("each policy chooses");
}

void Policy::forget(WorkerId worker) { prefixes_.forget(worker); }

}  // namespace slime::gateway
