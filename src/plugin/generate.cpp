#include "plugin/generate.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "net/frame_channel.h"
#include "plugin/sample_record.h"

namespace slime::plugin {
namespace {

/// More parts of one execution than this are an endless loop of the user's.
constexpr std::size_t kMostParts = 1024;

/// Parts of one execution train as one: they need one id, and it is the sample's where the function
/// gives none.
void check_rollout_ids(std::vector<Sample>& parts) {
  if (parts.size() == 1) return;
  const std::optional<int64_t> first = parts.front().rollout_id;
  for (const Sample& part : parts) {
    if (part.rollout_id == first) continue;
    throw net::FrameError(
        "the samples that the function returned have different rollout_ids; they are parts of one "
        "execution and need a common one");
  }
  for (Sample& part : parts) part.rollout_id = first.value_or(part.ordinal);
}

Expected<MadeSamples> made(const Sample& given, const Answer& answer, const SampleLimits& limits) {
  try {
    std::vector<Sample> parts;
    const auto add = [&](const json::value& record) {
      if (!record.is_object()) throw net::FrameError("an answer with something that is no sample");
      Sample part = read_sample(record.get_object(), answer.columns, given, limits);
      if (part.status == Status::kPending) part.status = Status::kCompleted;
      if (part.status == Status::kFailed) part.failure = "generate: " + part.failure;
      check_sampled(part, limits);
      parts.push_back(std::move(part));
    };
    const json::value* many = answer.value.if_contains("samples");
    if (const json::value* one = answer.value.if_contains("sample")) {
      add(*one);
    } else if (many != nullptr && many->is_array()) {
      if (many->get_array().size() > kMostParts) {
        return failure(fmt::format("the function returned {} samples; {} are the most",
                                   many->get_array().size(), kMostParts));
      }
      for (const json::value& record : many->get_array()) add(record);
    }
    if (parts.empty()) return failure("the plug-in host answered without a sample");
    check_rollout_ids(parts);
    MadeSamples all(std::move(parts), !answer.value.contains("sample"));
    if (const json::value* untrained = answer.value.if_contains("untrained_tokens");
        untrained != nullptr && untrained->is_int64())
      all.untrained_tokens = std::max<int64_t>(untrained->get_int64(), 0);
    return all;
  } catch (const net::FrameError& error) {
    return failure(error.what());
  }
}

}  // namespace

void generate(Hosts& hosts, const GenerateHook& how, json::object sampling_params, Sample sample,
              std::stop_token stop, std::function<void(Expected<MadeSamples>)> answer) {
  const auto given = std::make_shared<const Sample>(std::move(sample));
  hosts.call({.hook = how.hook,
              .subject = fmt::format("sample {}", given->ordinal),
              .timeout = how.timeout,
              .arguments =
                  [given, params = std::move(sampling_params),
                   is_evaluation = how.is_evaluation](Columns& columns) {
                    return json::object{{"sample", to_record(*given, columns)},
                                        {"sampling_params", params},
                                        {"evaluation", is_evaluation}};
                  },
              .stop = std::move(stop),
              .answer =
                  [given, limits = how.limits,
                   answer = std::move(answer)](const Expected<Answer>& returned) {
                    if (returned) {
                      answer(made(*given, *returned, limits));
                    } else {
                      answer(failure(returned.error().message));
                    }
                  }});
}

}  // namespace slime::plugin
