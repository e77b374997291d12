#include "loop/unsaved_steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <utility>

#include "core/error.h"
#include "core/replace_file.h"
#include "core/sampled_tokens.h"
#include "loop/sampled_step.h"

namespace slime::loop {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kBegin = "step_", kEnd = ".json";

fs::path file_of(const fs::path& folder, int64_t step) {
  return folder / fmt::format("{}{:07d}{}", kBegin, step, kEnd);
}

std::optional<int64_t> step_of(const fs::path& file) {
  const std::string name = file.filename().string();
  if (!name.starts_with(kBegin) || !name.ends_with(kEnd)) return std::nullopt;
  int64_t step = -1;
  const char* const end = name.data() + name.size() - kEnd.size();
  const auto [stop, error] = std::from_chars(name.data() + kBegin.size(), end, step);
  return error == std::errc() && stop == end ? std::optional(step) : std::nullopt;
}

/// Nothing, with `damage` saying why, where the file is not what keep() wrote.
std::optional<SampledStep> read_step(const fs::path& file, int64_t step, std::string& damage) {
  if (!fs::exists(file)) return std::nullopt;
  std::ifstream in(file, std::ios::binary);
  if (!in) {
    damage = fmt::format("{}: cannot be read", file.string());
    return std::nullopt;
  }
  const std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  const auto parsed = try_parse_json(text);
  if (!parsed || !parsed->is_object()) {
    damage = fmt::format("{}: is cut off or damaged ({} bytes)", file.string(), text.size());
    return std::nullopt;
  }
  try {
    SampledStep sampled = sampled_step_from_json(parsed->get_object(), file.string());
    if (sampled.step == step) return sampled;
    damage = fmt::format("{}: says that it is step {}", file.string(), sampled.step);
  } catch (const ConfigError& error) {
    damage = error.what();
  }
  return std::nullopt;
}

/// Of the same prompt: its tokens, and the label that it is scored by.
bool has_same_prompt(const Group& a, const Group& b) {
  const auto prompt = [](const Sample& sample) {
    return std::span(sample.tokens).first(static_cast<std::size_t>(sample.prompt_length));
  };
  return std::ranges::all_of(a.samples, [&](const Sample& sample) {
    return std::ranges::equal(prompt(sample), prompt(b.samples.front()));
  });
}

/// All that are not final, and new ones up to `last`, in their order. They wait again afterwards.
std::vector<Group> take_up_to(int64_t last, buffer::DataSource& prompts) {
  std::vector<Group> all = prompts.take(prompts.num_waiting());
  while (prompts.next_group() <= last) {
    std::vector<Group> next = prompts.take(last + 1 - prompts.next_group());
    if (next.empty()) break;
    std::ranges::move(next, std::back_inserter(all));
  }
  return all;
}

/// Tokens of `now` count once: `before` has those that the checkpoint counted.
void count(const Group& now, const Group& before, OutcomeLog& outcomes) {
  const int64_t counted = num_sampled_tokens(before), tokens = num_sampled_tokens(now);
  const bool is_known = outcomes.knows(now.ordinal);
  if (!is_known) {
    outcomes.sampled(tokens);
    outcomes.dispatched(now);
  } else if (tokens >= counted) {
    outcomes.sampled(tokens - counted);
  } else {  // it was sampled again from its prompt
    outcomes.sampled(tokens);
    outcomes.discarded(now.ordinal, counted);
  }
}

}  // namespace

void UnsavedSteps::keep(int64_t step, const report::Collected& collected) {
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error) throw ConfigError(fmt::format("{}: {}", folder_.string(), error.message()));
  replace_file(file_of(folder_, step),
               json_text(to_json(SampledStep{.step = step, .collected = collected})) + "\n");
}

void UnsavedSteps::saved(int64_t step) {
  std::error_code error;
  std::vector<fs::path> old;
  for (fs::directory_iterator entry(folder_, error), end; !error && entry != end;
       entry.increment(error))
    if (const auto number = step_of(entry->path()); number && *number <= step)
      old.push_back(entry->path());
  for (const fs::path& file : old) fs::remove(file, error);
}

UnsavedGroups UnsavedSteps::read(int64_t first) const {
  UnsavedGroups found;
  for (;; ++found.num_steps) {
    const int64_t number = first + found.num_steps;
    std::optional<SampledStep> step = read_step(file_of(folder_, number), number, found.damage);
    if (!step) return found;
    std::ranges::move(step->collected.groups, std::back_inserter(found.groups));
  }
}

std::set<int64_t> give_again(std::vector<Group> groups, buffer::DataSource& prompts,
                             OutcomeLog& outcomes) {
  if (groups.empty()) return {};
  const int64_t last = std::ranges::max(groups, {}, &Group::ordinal).ordinal;
  std::vector<Group> all = take_up_to(last, prompts);
  std::map<int64_t, Group*> by_ordinal;
  for (Group& group : all) by_ordinal[group.ordinal] = &group;
  const bool are_of_these = std::ranges::all_of(groups, [&](const Group& group) {
    const auto found = by_ordinal.find(group.ordinal);
    return found != by_ordinal.end() && !group.samples.empty() && prompts.may_wait(group) &&
           has_same_prompt(group, *found->second);
  });
  std::set<int64_t> ordinals;
  std::vector<Group> waiting;
  if (are_of_these) {
    for (Group& group : groups) {
      count(group, *by_ordinal.at(group.ordinal), outcomes);
      group.begun_with = by_ordinal.at(group.ordinal)->begun_with;
      ordinals.insert(group.ordinal);
      waiting.push_back(std::move(group));
    }
  }
  for (Group& group : all)
    if (!ordinals.contains(group.ordinal)) waiting.push_back(std::move(group));
  prompts.add(std::move(waiting));
  prompts.add_replays(ordinals);
  return ordinals;
}

}  // namespace slime::loop
