#include "plugin/reward.h"

#include <fmt/format.h>

#include <memory>
#include <utility>

#include "net/frame_channel.h"
#include "plugin/group_record.h"
#include "plugin/sample_record.h"

namespace slime::plugin {
namespace {

Expected<Sample> scored(const Sample& sample, const Answer& answer) {
  const json::value* reward = answer.value.if_contains("reward");
  if (reward == nullptr) return failure("the plug-in host answered without a reward");
  Sample changed = sample;
  const json::value* changes = answer.value.if_contains("changes");
  if (changes != nullptr && !changes->is_object())
    return failure("the plug-in host answered with odd changes");
  try {
    if (changes != nullptr) apply_changes(changes->get_object(), answer.columns, "reward", changed);
  } catch (const net::FrameError& error) {
    return failure(error.what());
  }
  changed.reward = *reward;  // what it returns, whatever it set
  return changed;
}

Expected<Group> scored(const Group& group, const Answer& answer) {
  const json::value* rewards = answer.value.if_contains("rewards");
  if (rewards == nullptr || !rewards->is_array() ||
      rewards->get_array().size() != group.samples.size())
    return failure("the plug-in host answered without a reward for each sample");
  Group changed = group;
  try {
    take_changes(answer, "reward", changed);
  } catch (const net::FrameError& error) {
    return failure(error.what());
  }
  for (std::size_t i = 0; i < changed.samples.size(); ++i)
    changed.samples[i].reward = rewards->get_array()[i];
  return changed;
}

/// `name`: of the argument. `Scored` is a Sample or a Group.
template <typename Scored, typename ToWord>
void ask(Hosts& hosts, int hook, std::chrono::duration<double> timeout, std::string subject,
         const char* name, ToWord to_word, Scored what, std::stop_token stop,
         std::function<void(Expected<Scored>)> answer) {
  const auto shared = std::make_shared<const Scored>(std::move(what));
  hosts.call({.hook = hook,
              .subject = std::move(subject),
              .timeout = timeout,
              .arguments =
                  [shared, name, to_word](Columns& columns) {
                    return json::object{{name, to_word(*shared, columns)}};
                  },
              .stop = std::move(stop),
              .answer =
                  [shared, answer = std::move(answer)](const Expected<Answer>& returned) {
                    if (returned) {
                      answer(scored(*shared, *returned));
                    } else {
                      answer(failure(returned.error().message));
                    }
                  }});
}

}  // namespace

void score(Hosts& hosts, int hook, std::chrono::duration<double> timeout, Sample sample,
           std::stop_token stop, std::function<void(Expected<Sample>)> answer) {
  std::string subject = fmt::format("sample {}", sample.ordinal);
  const auto to_word = [](const Sample& each, Columns& columns) {
    return to_record(each, columns);
  };
  ask(hosts, hook, timeout, std::move(subject), "sample", to_word, std::move(sample),
      std::move(stop), std::move(answer));
}

void score_group(Hosts& hosts, int hook, std::chrono::duration<double> timeout, Group group,
                 std::stop_token stop, std::function<void(Expected<Group>)> answer) {
  std::string subject = fmt::format("prompt {}", group.ordinal);
  const auto to_word = [](const Group& each, Columns& columns) {
    return to_records(each, columns);
  };
  ask(hosts, hook, timeout, std::move(subject), "samples", to_word, std::move(group),
      std::move(stop), std::move(answer));
}

}  // namespace slime::plugin
