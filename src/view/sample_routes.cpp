#include "view/sample_routes.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include "algo/reward_normalization.h"
#include "config/advantage_estimators.h"
#include "core/error.h"
#include "report/alarms.h"
#include "report/metrics_json.h"
#include "report/report_rollouts.h"
#include "report/run_files.h"
#include "view/guarded_route.h"
#include "view/run_metrics.h"

namespace slime::view {
namespace {

using net::HttpRequest;
using net::HttpResponse;

constexpr std::size_t kExcerpt = 240;       // bytes of a text in a table
constexpr std::size_t kLargestGroup = 256;  // samples side by side
constexpr std::size_t kMostGroupBytes = std::size_t{32} << 20;

HttpResponse ok(const json::value& body) { return {.status = 200, .body = json_text(body)}; }

int64_t whole_in(const HttpRequest& request, const char* name) {
  const std::string text = request.query_value(name).value_or("");
  int64_t number = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 0)
    throw ConfigError(fmt::format("{}: should be a whole number", name));
  return number;
}

bool continues(char byte) { return (static_cast<unsigned char>(byte) & 0xc0U) == 0x80; }

/// A place at or before `at` where a character begins.
std::size_t character_at(std::string_view text, std::size_t at) {
  at = std::min(at, text.size());
  while (at > 0 && at < text.size() && continues(text[at])) --at;
  return at;
}

/// What texts begin and end with, all of them: a chat template's frame says nothing in a table.
struct Frame {
  std::size_t begin = 0, end = 0;
};
Frame common_frame(const std::vector<std::string_view>& texts) {
  if (texts.size() < 2) return {};
  Frame frame{texts[0].size(), texts[0].size()};
  for (const std::string_view text : texts) {
    const std::size_t limit = std::min(text.size(), texts[0].size());
    std::size_t same = 0;
    while (same < std::min(frame.begin, limit) && text[same] == texts[0][same]) ++same;
    frame.begin = same;
    same = 0;
    while (same < std::min(frame.end, limit - frame.begin) &&
           text[text.size() - 1 - same] == texts[0][texts[0].size() - 1 - same])
      ++same;
    frame.end = same;
  }
  return frame;
}

/// One line of at most kExcerpt bytes.
std::string excerpt(std::string_view text, Frame frame = {}) {
  std::size_t begin = 0, end = text.size();
  if (frame.begin + frame.end < text.size()) {
    // From the beginning of the line where texts first differ.
    const std::size_t line = text.rfind('\n', frame.begin == 0 ? 0 : frame.begin - 1);
    const std::size_t first = line == std::string_view::npos ? 0 : line + 1;
    begin = frame.begin - std::min(first, frame.begin) <= 80 ? first : frame.begin;
    end = text.size() - frame.end;
  }
  begin = character_at(text, begin);
  const std::size_t last = character_at(text, std::min(end, begin + kExcerpt));
  std::string out = begin > 0 ? "\u2026" : "";
  bool is_space = false;
  for (const char c : text.substr(begin, last - begin)) {
    const bool was_space = std::exchange(is_space, c == ' ' || c == '\n' || c == '\t' || c == '\r');
    if (!is_space) out += c;
    if (is_space && !was_space) out += ' ';
  }
  if (last < end) out += "\u2026";
  return out;
}

std::string_view text_in(const json::object& line, std::string_view member) {
  const json::value* value = line.if_contains(member);
  return value != nullptr && value->is_string() ? std::string_view(value->get_string())
                                                : std::string_view();
}

json::object row_of(const IndexedStep& step, std::size_t place) {
  const SampleEntry& entry = step.entries[place];
  json::object row{{"step", step.step},
                   {"place", place},
                   {"group", entry.group},
                   {"index", entry.index_in_group},
                   {"reward", report::finite_json(entry.reward)},
                   {"status", to_string(entry.status)},
                   {"length", entry.length},
                   {"difference", report::finite_json(entry.difference)}};
  if (entry.oldest_version >= 0) row["versions"] = {entry.oldest_version, entry.newest_version};
  if (entry.is_removed) row["removed"] = true;
  if (entry.is_in_dead_group) row["dead"] = true;
  return row;
}

json::array rows_of(const FoundSamples& found, const SampleQuery& query) {
  const std::size_t begin = std::min(query.offset, found.samples.size());
  const std::size_t end = std::min(begin + query.limit, found.samples.size());
  std::vector<json::value> lines;
  for (std::size_t i = begin; i < end; ++i) {
    const FoundSample& sample = found.samples[i];
    auto line = try_parse_json(line_of(found.step_of(sample), found.entry_of(sample)));
    lines.push_back(line && line->is_object() ? std::move(*line) : json::value(json::object()));
  }
  std::vector<std::string_view> prompts;
  for (const json::value& line : lines) prompts.push_back(text_in(line.get_object(), "prompt"));
  const Frame frame = common_frame(prompts);
  json::array rows;
  for (std::size_t i = begin; i < end; ++i) {
    const FoundSample& sample = found.samples[i];
    json::object row = row_of(found.step_of(sample), sample.entry);
    row["prompt"] = excerpt(prompts[i - begin], frame);
    row["response"] = excerpt(text_in(lines[i - begin].get_object(), "response"));
    rows.push_back(std::move(row));
  }
  return rows;
}

double mean_reward(const FoundSamples& found) {
  double sum = 0;
  std::size_t count = 0;
  for (const FoundSample& sample : found.samples) {
    const SampleEntry& entry = found.entry_of(sample);
    if (!entry.has_reward()) continue;
    sum += entry.reward;
    ++count;
  }
  return count > 0 ? sum / static_cast<double>(count) : std::nan("");
}

HttpResponse table(SampleStore& store, const std::filesystem::path& folder,
                   const HttpRequest& request) {
  const SampleQuery query = read_query(request);
  const auto index = store.index_of(folder);
  SampleQuery shape = query;  // of the whole list
  shape.offset = 0;
  const std::string key = fmt::format(
      "{}|{}|{}|{}|{}|{}|{}|{}|{}|{}", query.step.value_or(-1), query.last_step.value_or(-1),
      query.reward ? fmt::format("{}", *query.reward) : "",
      query.status ? to_string(*query.status) : "", query.version.value_or(-1),
      query.group.value_or(-1), query.is_dead, static_cast<int>(query.order), query.is_descending,
      query.text);
  if (query.step) index->step(*query.step);  // so that its index has its version
  const auto found = store.find(index, shape, key);
  const std::vector<int64_t> known = index->known_steps();
  json::object body{{"total", found->samples.size()},
                    {"offset", query.offset},
                    {"rows", rows_of(*found, query)},
                    {"mean_reward", report::finite_json(mean_reward(*found))},
                    {"num_indexed", index->steps().size()},
                    {"num_steps", known.size()}};
  if (!known.empty()) {
    body["first_step"] = known.front();
    body["last_step"] = known.back();
  }
  if (found->next_step) body["next_step"] = *found->next_step;
  return ok(body);
}

/// A sample as the page shows it; an empty one when its file has been replaced.
json::object whole_sample(const SampleIndex::Step& step, std::size_t place,
                          const std::string& reward_key) {
  const auto line = try_parse_json(line_of(*step, step->entries.at(place)));
  if (!line || !line->is_object()) return {};
  json::object sample = report::page_sample(line->get_object(), step->step, reward_key);
  sample["place"] = place;
  return sample;
}

SampleIndex::Step step_in(SampleIndex& index, const HttpRequest& request) {
  SampleIndex::Step step = index.step(whole_in(request, "step"));
  if (!step) throw ConfigError("step: has no rollout file (any more)");
  return step;
}

/// What is subtracted from rewards, as the run's settings say; nothing where advantages are not of samples.
std::optional<algo::RewardNormalization> normalization_of(const json::object& flags) {
  using algo::RewardNormalization;
  using Baseline = config::AdvantageEstimator::Baseline;
  const json::value* given = flags.if_contains("--advantage-estimator");
  const std::string word =
      given != nullptr && given->is_string() ? std::string(given->get_string()) : "grpo";
  const json::value* plain = flags.if_contains("--disable-grpo-std-normalization");
  const bool has_deviation = plain == nullptr || *plain != json::value(true);
  for (const config::AdvantageEstimator& each : config::advantage_estimators()) {
    if (each.word != word) continue;
    if (each.baseline == Baseline::kMean) return RewardNormalization::kMean;
    if (each.baseline == Baseline::kLeaveOneOut) return RewardNormalization::kLeaveOneOut;
    if (each.baseline == Baseline::kMeanAndStd)
      return has_deviation ? RewardNormalization::kMeanAndStd : RewardNormalization::kMean;
  }
  return std::nullopt;
}

/// Rewards as group normalisation leaves them: the advantage that each token of a sample gets, before what
/// the run adds to it token by token.
void add_advantages(json::array& samples, const json::object& flags) {
  const auto how = normalization_of(flags);
  std::vector<double> rewards;
  std::vector<int64_t> groups, executions;
  for (const json::value& sample : samples) {
    const json::value* reward = sample.get_object().if_contains("reward");
    if (reward == nullptr || !reward->is_number()) return;
    rewards.push_back(reward->to_number<double>());
    groups.push_back(0);
    executions.push_back(static_cast<int64_t>(executions.size()));
  }
  if (!how || rewards.empty()) return;
  const std::vector<double> advantages = algo::normalize_rewards(rewards, groups, executions, *how);
  for (std::size_t i = 0; i < samples.size(); ++i)
    samples[i].get_object()["advantage"] = report::finite_json(advantages[i]);
}

HttpResponse group(SampleStore& store, const std::filesystem::path& folder,
                   const HttpRequest& request) {
  const auto index = store.index_of(folder);
  const SampleIndex::Step step = step_in(*index, request);
  const int64_t wanted = whole_in(request, "group");
  const std::string key = index->reward_key();
  json::array samples;
  std::size_t bytes = 0;
  bool is_whole = true;
  for (std::size_t place = 0; place < step->entries.size(); ++place) {
    if (step->entries[place].group != wanted) continue;
    bytes += step->entries[place].bytes;
    if (samples.size() == kLargestGroup || bytes > kMostGroupBytes) {
      is_whole = false;
      break;
    }
    json::object sample = whole_sample(step, place, key);
    if (!sample.empty()) samples.push_back(std::move(sample));
  }
  if (is_whole) add_advantages(samples, flags_of(folder));
  std::vector<int64_t> groups;  // in the order of the file
  for (const SampleEntry& entry : step->entries)
    if (groups.empty() || groups.back() != entry.group) groups.push_back(entry.group);
  json::object body{{"samples", std::move(samples)}, {"is_whole", is_whole}};
  const auto at = std::ranges::find(groups, wanted);
  if (at != groups.end() && at != groups.begin()) body["previous"] = *(at - 1);
  if (at != groups.end() && at + 1 != groups.end()) body["next"] = *(at + 1);
  return ok(body);
}

HttpResponse sample(SampleStore& store, const std::filesystem::path& folder,
                    const HttpRequest& request) {
  const auto index = store.index_of(folder);
  const SampleIndex::Step step = step_in(*index, request);
  const int64_t place = whole_in(request, "place");
  if (place >= static_cast<int64_t>(step->entries.size()))
    throw ConfigError("place: the step has fewer samples");
  json::object body = whole_sample(step, static_cast<std::size_t>(place), index->reward_key());
  if (body.empty()) throw ConfigError("step: its file has been replaced; load the page again");
  return ok(body);
}

HttpResponse steps(SampleStore& store, const std::filesystem::path& folder) {
  json::array rows;
  for (const SampleIndex::Step& step : store.index_of(folder)->steps()) {
    rows.push_back(json::object{{"step", step->step},
                                {"samples", step->entries.size()},
                                {"groups", step->num_groups},
                                {"dead", step->num_dead_groups},
                                {"reward", report::finite_json(step->mean_reward)}});
  }
  return ok(rows);
}

HttpResponse alarms(const std::filesystem::path& folder) {
  return ok(report::to_json(
      report::find_alarms(metrics_of_run(folder), report::groups_per_step(flags_of(folder)))));
}

}  // namespace

void add_sample_routes(RunCatalog& catalog, SampleStore& store,
                       std::vector<net::HttpRoute>& routes) {
  const auto add = [&](const char* path, auto answer) {
    routes.push_back(guarded_route(path, [&catalog, answer](const HttpRequest& request) {
      return answer(folder_of_request(catalog, request), request);
    }));
  };
  using Folder = std::filesystem::path;
  add("/api/samples", [&store](const Folder& folder, const HttpRequest& request) {
    return table(store, folder, request);
  });
  add("/api/sample", [&store](const Folder& folder, const HttpRequest& request) {
    return sample(store, folder, request);
  });
  add("/api/group", [&store](const Folder& folder, const HttpRequest& request) {
    return group(store, folder, request);
  });
  add("/api/steps",
      [&store](const Folder& folder, const HttpRequest&) { return steps(store, folder); });
  add("/api/alarms", [](const Folder& folder, const HttpRequest&) { return alarms(folder); });
}

}  // namespace slime::view
