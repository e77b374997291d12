#include "train/karmarkar_karp.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <queue>

#include "core/error.h"

namespace slime::train {
namespace {

using Item = std::pair<int64_t, double>;  // index, weight

struct Set {
  double sum = 0;
  std::vector<Item> items;

  void add(const Item& item) {
    sum += item.second;
    items.push_back(item);
  }
  bool operator<(const Set& other) const {
    if (sum != other.sum) return sum < other.sum;
    if (items.size() != other.items.size()) return items.size() < other.items.size();
    return items < other.items;
  }
};

/// k sets, largest first.
struct State {
  std::vector<Set> sets;

  double spread() const { return sets.front().sum - sets.back().sum; }
  void sort() {
    std::sort(sets.begin(), sets.end(), [](const Set& a, const Set& b) { return b < a; });
  }
  /// Order of the priority queue, whose top is its largest element.
  bool operator<(const State& other) const {
    if (spread() != other.spread()) return spread() < other.spread();
    return sets.front() < other.sets.front();
  }
};

/// The largest set of one with the smallest of the other, and so on: their differences cancel.
State merge(State a, const State& b) {
  const std::size_t k = a.sets.size();
  for (std::size_t j = 0; j < k; ++j) {
    for (const Item& item : b.sets[k - 1 - j].items) a.sets[j].add(item);
  }
  a.sort();
  return a;
}

}  // namespace

std::vector<std::vector<int64_t>> partition_evenly(std::span<const double> weights, int64_t k,
                                                   bool equal_size) {
  const auto count = static_cast<int64_t>(weights.size());
  if (k < 1 || count < k)
    throw ConfigError(fmt::format("{} items cannot fill {} partitions", count, k));
  if (equal_size && count % k != 0)
    throw ConfigError(fmt::format("{} items do not divide into {} equal partitions", count, k));

  std::vector<Item> items;
  for (int64_t i = 0; i < count; ++i) items.emplace_back(i, weights[i]);
  std::sort(items.begin(), items.end(), [](const Item& a, const Item& b) {
    return std::pair(a.second, a.first) < std::pair(b.second, b.first);
  });

  std::priority_queue<State> states;
  const int64_t items_per_state = equal_size ? k : 1;
  for (int64_t begin = 0; begin < count; begin += items_per_state) {
    State state{std::vector<Set>(k)};
    for (int64_t j = 0; j < items_per_state; ++j) state.sets[j].add(items[begin + j]);
    state.sort();
    states.push(std::move(state));
  }
  while (states.size() > 1) {
    State first = states.top();
    states.pop();
    const State second = states.top();
    states.pop();
    states.push(merge(std::move(first), second));
  }

  std::vector<std::vector<int64_t>> partitions;
  for (const Set& set : states.top().sets) {
    if (set.items.empty())
      throw ConfigError(fmt::format("{} items leave one of {} partitions empty", count, k));
    std::vector<int64_t> partition;
    for (const Item& item : set.items) partition.push_back(item.first);
    std::sort(partition.begin(), partition.end());
    partitions.push_back(std::move(partition));
  }
  return partitions;
}

}  // namespace slime::train
