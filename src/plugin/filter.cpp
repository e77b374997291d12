#include "plugin/filter.h"

#include <fmt/format.h>

#include <memory>
#include <utility>

#include "net/frame_channel.h"
#include "plugin/group_record.h"

namespace slime::plugin {
namespace {

bool truth(const json::object& value, std::string_view name) {
  const json::value* word = value.if_contains(name);
  if (word == nullptr || !word->is_bool())
    throw net::FrameError(fmt::format("the plug-in host answered without {}", name));
  return word->get_bool();
}

Expected<Filtered> filtered(const Group& group, const Answer& answer) {
  try {
    Filtered result{.group = group, .verdict = {}};
    result.verdict.keep = truth(answer.value, "keep");
    result.verdict.keep_when_insufficient = truth(answer.value, "keep_when_insufficient");
    const json::value* reason = answer.value.if_contains("reason");
    const bool has_reason = reason != nullptr && reason->is_string();
    result.verdict.reason = has_reason ? std::string(reason->get_string()) : "no_reason";
    take_changes(answer, "filter", result.group);
    return result;
  } catch (const net::FrameError& error) {
    return failure(error.what());
  }
}

}  // namespace

void filter(Hosts& hosts, int hook, std::chrono::duration<double> timeout, Group group,
            std::stop_token stop, std::function<void(Expected<Filtered>)> answer) {
  const auto shared = std::make_shared<const Group>(std::move(group));
  hosts.call({.hook = hook,
              .subject = fmt::format("prompt {}", shared->ordinal),
              .timeout = timeout,
              .arguments =
                  [shared](Columns& columns) {
                    return json::object{{"samples", to_records(*shared, columns)}};
                  },
              .stop = std::move(stop),
              .answer =
                  [shared, answer = std::move(answer)](const Expected<Answer>& returned) {
                    if (returned) {
                      answer(filtered(*shared, *returned));
                    } else {
                      answer(failure(returned.error().message));
                    }
                  }});
}

}  // namespace slime::plugin
