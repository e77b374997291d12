#include "view/sample_query.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <fstream>
#include <limits>
#include <utility>

#include "core/error.h"
#include "core/json.h"

namespace slime::view {
namespace {

using std::chrono::steady_clock;

constexpr int64_t kLargest = int64_t{1} << 53;
constexpr std::size_t kMostMatches = 10'000;  // of a search for text

template <typename Number>
std::optional<Number> number_of(const net::HttpRequest& request, const char* name, Number low,
                                Number high) {
  const auto text = request.query_value(name);
  if (!text || text->empty()) return std::nullopt;
  Number number{};
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), number);
  if (error != std::errc() || end != text->data() + text->size() ||
      !(number >= low && number <= high))
    throw ConfigError(fmt::format("{}: should be a number from {} to {}", name, low, high));
  return number;
}

/// "length-": the longest first.
void read_order(const std::string& text, SampleQuery& query) {
  constexpr auto kOrders = std::to_array<std::pair<std::string_view, SampleOrder>>(
      {{"reward", SampleOrder::kReward},
       {"length", SampleOrder::kLength},
       {"difference", SampleOrder::kDifference},
       {"version", SampleOrder::kVersion}});
  if (text.empty()) return;
  query.is_descending = text.back() == '-';
  const std::string_view name = std::string_view(text).substr(0, text.size() - 1);
  for (const auto& [known, order] : kOrders) {
    if (known != name || (text.back() != '-' && text.back() != '+')) continue;
    query.order = order;
    return;
  }
  throw ConfigError(
      "sort: should be reward, length, difference or version, with + or - at the end");
}

bool matches(const SampleEntry& entry, const SampleQuery& query) {
  if (query.reward && !(entry.reward == static_cast<float>(*query.reward))) return false;
  if (query.status && entry.status != *query.status) return false;
  if (query.version && (entry.oldest_version < 0 || entry.oldest_version > *query.version ||
                        entry.newest_version < *query.version))
    return false;
  if (query.group && entry.group != *query.group) return false;
  return !query.is_dead || entry.is_in_dead_group;
}

/// What the order compares; NaN comes last in both directions.
double key_of(const SampleEntry& entry, SampleOrder order) {
  switch (order) {
    case SampleOrder::kReward:
      return entry.reward;
    case SampleOrder::kLength:
      return entry.length;
    case SampleOrder::kDifference:
      return entry.difference;
    case SampleOrder::kVersion:
      return entry.oldest_version < 0 ? std::numeric_limits<double>::quiet_NaN()
                                      : entry.oldest_version;
    case SampleOrder::kFile:
      break;
  }
  return 0;
}

/// Newest step first, in a step as the file has them, but where the query has another order.
void sort(FoundSamples& found, const SampleQuery& query) {
  if (query.order == SampleOrder::kFile) return;  // they were found so
  const double sign = query.is_descending ? -1 : 1;
  std::vector<std::pair<float, FoundSample>> keyed;
  keyed.reserve(found.samples.size());
  for (const FoundSample& sample : found.samples) {
    const double key = sign * key_of(found.entry_of(sample), query.order);
    const double last = std::isnan(key) ? std::numeric_limits<double>::infinity() : key;
    keyed.emplace_back(static_cast<float>(last), sample);
  }
  std::ranges::stable_sort(keyed, {}, [](const auto& each) { return each.first; });
  for (std::size_t i = 0; i < keyed.size(); ++i) found.samples[i] = keyed[i].second;
}

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

std::string lowered(std::string_view text) {
  std::string out(text);
  std::ranges::transform(out, out.begin(), lower);
  return out;
}

bool member_contains(const json::object& line, std::string_view member, std::string_view words) {
  const json::value* value = line.if_contains(member);
  if (value == nullptr || !value->is_string()) return false;
  return lowered(value->get_string()).find(words) != std::string::npos;
}

/// Whether prompt or response contain `words`, which are in lower case. `escaped`: as JSON has them; a line
/// without it is not parsed.
bool contains(const std::string& line, const std::string& words, const std::string& escaped) {
  if (lowered(line).find(escaped) == std::string::npos) return false;
  const std::optional<json::value> value = try_parse_json(line);
  if (!value || !value->is_object()) return false;
  const json::object& object = value->get_object();
  return member_contains(object, "prompt", words) || member_contains(object, "response", words);
}

/// Of the candidates those with the text, step by step until the time is over.
void keep_with_text(FoundSamples& found, const SampleQuery& query,
                    std::chrono::milliseconds budget) {
  const auto end = steady_clock::now() + budget;
  const std::string words = lowered(query.text);
  std::string escaped = json_text(std::string_view(words));
  escaped = lowered(escaped.substr(1, escaped.size() - 2));
  std::vector<FoundSample> kept;
  for (std::size_t i = 0; i < found.samples.size();) {
    const uint32_t step = found.samples[i].step;
    const IndexedStep& indexed = *found.steps[step];
    if (i > 0 && (steady_clock::now() > end || kept.size() >= kMostMatches)) {
      found.next_step = indexed.step;
      break;
    }
    for (; i < found.samples.size() && found.samples[i].step == step; ++i) {
      if (contains(line_of(indexed, found.entry_of(found.samples[i])), words, escaped))
        kept.push_back(found.samples[i]);
    }
  }
  found.samples = std::move(kept);
}

}  // namespace

SampleQuery read_query(const net::HttpRequest& request) {
  SampleQuery query;
  query.step = number_of<int64_t>(request, "step", 0, kLargest);
  query.last_step = number_of<int64_t>(request, "last_step", 0, kLargest);
  query.reward = number_of<double>(request, "reward", -1e30, 1e30);
  query.version = number_of<int32_t>(request, "version", 0, INT32_MAX);
  query.group = number_of<int64_t>(request, "group", 0, kLargest);
  query.is_dead = number_of<int>(request, "dead", 0, 1).value_or(0) == 1;
  query.offset =
      static_cast<std::size_t>(number_of<int64_t>(request, "offset", 0, kLargest).value_or(0));
  query.limit = static_cast<std::size_t>(
      number_of<int64_t>(request, "limit", 1, SampleQuery::kMostRows).value_or(100));
  if (const auto status = request.query_value("status"); status && !status->empty()) {
    query.status = status_from_string(*status);
    if (!query.status)
      throw ConfigError("status: should be pending, completed, truncated, aborted or failed");
  }
  query.text = request.query_value("text").value_or("");
  if (query.text.size() > SampleQuery::kLongestText)
    throw ConfigError(fmt::format("text: should have at most {} bytes", SampleQuery::kLongestText));
  read_order(request.query_value("sort").value_or(""), query);
  return query;
}

FoundSamples find_samples(SampleIndex& index, const SampleQuery& query,
                          std::chrono::milliseconds budget) {
  FoundSamples found;
  if (query.step) {
    if (SampleIndex::Step step = index.step(*query.step)) found.steps.push_back(std::move(step));
  } else {
    found.steps = index.steps();
    std::ranges::reverse(found.steps);
    if (query.last_step)
      std::erase_if(found.steps, [&](const auto& step) { return step->step > *query.last_step; });
  }
  for (std::size_t s = 0; s < found.steps.size(); ++s) {
    const std::vector<SampleEntry>& entries = found.steps[s]->entries;
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (matches(entries[i], query))
        found.samples.push_back({static_cast<uint32_t>(s), static_cast<uint32_t>(i)});
    }
  }
  if (!query.text.empty()) keep_with_text(found, query, budget);
  sort(found, query);
  return found;
}

}  // namespace slime::view
