#include "plugin/reward.h"

#include <fmt/format.h>

#include <memory>
#include <utility>

#include "net/frame_channel.h"
#include "plugin/sample_record.h"

namespace slime::plugin {
namespace {

Expected<Sample> scored(const Sample& sample, const Answer& answer, Hosts& hosts) {
  const json::value* reward = answer.value.if_contains("reward");
  if (reward == nullptr) return failure("the plug-in host answered without a reward");
  Sample changed = sample;
  changed.reward = *reward;
  const json::value* changes = answer.value.if_contains("changes");
  if (changes == nullptr) return changed;
  if (!changes->is_object()) return failure("the plug-in host answered with odd changes");
  try {
    for (const std::string& name : apply_changes(changes->get_object(), answer.columns, changed)) {
      hosts.tell_once(fmt::format(
          "a reward function sets Sample.{}, which is not kept; Sample.metadata is", name));
    }
  } catch (const net::FrameError& error) {
    return failure(error.what());
  }
  return changed;
}

}  // namespace

void score(Hosts& hosts, int hook, std::chrono::duration<double> timeout, Sample sample,
           std::stop_token stop, std::function<void(Expected<Sample>)> answer) {
  const auto shared = std::make_shared<const Sample>(std::move(sample));
  hosts.call({.hook = hook,
              .subject = fmt::format("sample {}", shared->ordinal),
              .timeout = timeout,
              .arguments =
                  [shared](Columns& columns) {
                    return json::object{{"sample", to_record(*shared, columns)}};
                  },
              .stop = std::move(stop),
              .answer =
                  [shared, &hosts, answer = std::move(answer)](const Expected<Answer>& returned) {
                    if (returned) {
                      answer(scored(*shared, *returned, hosts));
                    } else {
                      answer(failure(returned.error().message));
                    }
                  }});
}

}  // namespace slime::plugin
