#include "plugin/sample_hook.h"

#include <fmt/format.h>

#include <memory>
#include <string>
#include <utility>

#include "net/frame_channel.h"
#include "plugin/sample_record.h"

namespace slime::plugin {
namespace {

Expected<Sample> seen(const Sample& before, const Answer& answer, const SampleLimits& limits) {
  const json::value* record = answer.value.if_contains("sample");
  if (record == nullptr || !record->is_object())
    return failure("the plug-in host answered without a sample");
  try {
    Sample after = read_sample(record->get_object(), answer.columns, before, limits);
    if (after.status == Status::kPending || after.status == Status::kAborted)
      return failure(fmt::format("Sample.status was set to {}", to_string(after.status)));
    if (after.status == Status::kFailed) after.failure = "sample hook: " + after.failure;
    check_sampled(after, limits);
    return after;
  } catch (const net::FrameError& error) {
    return failure(error.what());
  }
}

}  // namespace

void call_sample_hooks(Hosts& hosts, std::vector<int> hooks, const SampleHooks& how, Sample sample,
                       std::stop_token stop, std::function<void(Expected<Sample>)> answer) {
  if (hooks.empty()) return answer(std::move(sample));
  const int first = hooks.front();
  hooks.erase(hooks.begin());
  const auto shared = std::make_shared<const Sample>(std::move(sample));
  hosts.call({.hook = first,
              .subject = fmt::format("sample {}", shared->ordinal),
              .timeout = how.timeout,
              .arguments =
                  [shared, how](Columns& columns) {
                    return json::object{{"sample", to_record(*shared, columns)},
                                        {"rollout_id", how.rollout_id},
                                        {"evaluation", how.is_evaluation}};
                  },
              .stop = stop,
              .answer =
                  [=, &hosts, rest = std::move(hooks),
                   answer = std::move(answer)](const Expected<Answer>& returned) {
                    if (!returned) return answer(failure(returned.error().message));
                    Expected<Sample> after = seen(*shared, *returned, how.limits);
                    if (!after || after->status == Status::kFailed) return answer(std::move(after));
                    call_sample_hooks(hosts, rest, how, std::move(*after), stop, answer);
                  }});
}

}  // namespace slime::plugin
