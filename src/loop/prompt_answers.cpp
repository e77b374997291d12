#include "loop/prompt_answers.h"

#include <fmt/format.h>

#include <utility>

#include "core/error.h"
#include "core/sampled_tokens.h"
#include "net/frame_channel.h"
#include "plugin/group_record.h"
#include "plugin/read_sample.h"

namespace slime::loop {
namespace {

constexpr int64_t kMostGroups = 65536;  // of one question

int64_t group_of(const json::value& record) {
  const json::object* sample = record.if_object();
  const json::value* group = sample == nullptr ? nullptr : sample->if_contains("group_index");
  if (group == nullptr || !group->is_int64())
    throw net::FrameError("add_samples: a sample without group_index");
  return group->get_int64();
}

}  // namespace

plugin::ReplyValue PromptAnswers::answer(const plugin::Question& question) {
  if (question.what == "get_samples") return get_samples(question);
  if (question.what == "add_samples") {
    add_samples(question);
    return {};
  }
  const int64_t number = question.what == "buffer_length"
                             ? prompts_.num_waiting()
                             : prompts_.prompts_per_epoch().value_or(0);
  return {.value = number};
}

plugin::ReplyValue PromptAnswers::get_samples(const plugin::Question& question) {
  const json::value* word = question.arguments.if_contains("count");
  const int64_t count = word != nullptr && word->is_int64() ? word->get_int64() : -1;
  if (count < 0 || count > kMostGroups)
    throw ConfigError(fmt::format("get_samples: from 0 to {} groups at once", kMostGroups));
  std::vector<Group> groups = prompts_.take(count);
  plugin::ReplyValue answer;
  answer.value = json::object{{"groups", plugin::to_records(groups, answer.columns)}};
  for (Group& group : groups) {
    outcomes_.dispatched(group);
    const int64_t ordinal = group.ordinal;
    taken_.emplace(ordinal, std::move(group));
  }
  return answer;
}

void PromptAnswers::add_samples(const plugin::Question& question) {
  const json::value* groups = question.arguments.if_contains("groups");
  if (groups == nullptr || !groups->is_array())
    throw net::FrameError("add_samples: without groups");
  for (const json::value& record : groups->get_array()) {
    const json::array* members = record.if_array();
    if (members == nullptr || members->empty())
      throw ConfigError("add_samples: a group is a list of samples");
    const int64_t ordinal = group_of(members->front());
    const auto taken = taken_.find(ordinal);
    if (taken == taken_.end()) {
      throw ConfigError(fmt::format(
          "add_samples: group {} was not taken by get_samples in this call, and has its outcome",
          ordinal));
    }
    Group group = taken->second;
    if (members->size() != group.samples.size()) {
      throw ConfigError(fmt::format("add_samples: group {} has {} samples, not {}", ordinal,
                                    group.samples.size(), members->size()));
    }
    for (std::size_t i = 0; i < members->size(); ++i) {
      if (group_of((*members)[i]) != ordinal)
        throw ConfigError(fmt::format("add_samples: samples of groups {} and {} in one", ordinal,
                                      group_of((*members)[i])));
      const Sample before = group.samples[i];
      group.samples[i] =
          plugin::read_sample((*members)[i].get_object(), question.columns, before, limits_);
      if (draws_ == Draws::kNothing && group.samples[i].tokens != before.tokens)
        throw ConfigError(fmt::format(
            "add_samples: sample {} has other tokens than it was taken with", before.ordinal));
    }
    const int64_t num_new =
        slime::num_sampled_tokens(group) - slime::num_sampled_tokens(taken->second);
    if (num_new < 0)
      throw ConfigError(fmt::format("add_samples: group {} has fewer tokens than before", ordinal));
    num_sampled_ += num_new;
    outcomes_.sampled(num_new);
    taken_.erase(taken);
    prompts_.add({std::move(group)});
    outcomes_.partial(ordinal);
  }
}

std::optional<Group> PromptAnswers::find_taken(int64_t ordinal) {
  const auto found = taken_.find(ordinal);
  if (found == taken_.end()) return std::nullopt;
  Group group = std::move(found->second);
  taken_.erase(found);
  return group;
}

std::vector<Group> PromptAnswers::taken() const {
  std::vector<Group> groups;
  for (const auto& [ordinal, group] : taken_) groups.push_back(group);
  return groups;
}

void PromptAnswers::end(const std::string& reason) {
  for (const auto& [ordinal, group] : taken_) outcomes_.failed(group, reason);
  taken_.clear();
}

}  // namespace slime::loop
