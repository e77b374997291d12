#include "plugin/users_prompts.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "core/error.h"
#include "net/frame_channel.h"
#include "plugin/group_record.h"

namespace slime::plugin {
namespace {

/// An attribute of samples that were given back, by which they are known when they come again.
constexpr std::string_view kMark = "slime_group";

void mark(json::array& members, int64_t ordinal) {
  for (json::value& member : members) {
    json::value& own = member.get_object()["extra"];
    if (!own.is_object()) own = json::object();
    own.get_object()[kMark] = ordinal;
  }
}

std::optional<int64_t> take_mark(Sample& sample) {
  json::value* own = sample.user_fields.if_contains("extra");
  json::value* word =
      own != nullptr && own->is_object() ? own->get_object().if_contains(kMark) : nullptr;
  if (word == nullptr || !word->is_int64()) return std::nullopt;
  const int64_t ordinal = word->get_int64();
  own->get_object().erase(kMark);
  if (own->get_object().empty()) sample.user_fields.erase("extra");
  return ordinal;
}

}  // namespace

UsersPrompts::UsersPrompts(const config::RunConfig& config, const setup::ModelText& text,
                           Hosts& hosts, QuestionHandler& handler, int hook,
                           const SampleLimits& limits)
    : config_(config),
      text_(text),
      hosts_(hosts),
      question_handler_(handler),
      hook_(hook),
      limits_(limits),
      render_(text.chat ? setup::render_prompts(config, text) : buffer::RenderFn()),
      tokenize_messages_(text.chat ? setup::tokenize_prompts(config, text)
                                   : buffer::TokenizeMessagesFn()) {}

Payload UsersPrompts::call(std::string_view method,
                           std::function<json::object(Columns&)> arguments) {
  Expected<Payload> returned = question_handler_.call(
      hosts_, {.hook = hook_,
               .subject = std::string(method),
               .timeout = std::chrono::duration<double>(config_.plugin_timeout_seconds),
               .arguments =
                   [method, arguments = std::move(arguments)](Columns& columns) {
                     json::object all = arguments(columns);
                     all["method"] = method;
                     return all;
                   },
               .stop = {},
               .answer = nullptr});
  if (returned) return std::move(*returned);
  throw ConfigError(fmt::format("--data-source-path {}: {}: {}", config_.data_source_path, method,
                                returned.error().message));
}

void UsersPrompts::tokenise(Sample& sample, const json::value* prompt) const {
  if (!sample.tokens.empty()) return;
  if (prompt != nullptr && prompt->is_array()) {
    if (!render_) {
      throw net::FrameError(
          "Sample.prompt is a list of messages: --apply-chat-template renders them, or the class "
          "itself");
    }
    const json::value* given = sample.metadata.if_contains("tools");
    const json::array tools =
        given != nullptr && given->is_array() ? given->get_array() : json::array();
    sample.prompt = render_(prompt->get_array(), tools);
    if (tokenize_messages_) sample.tokens = tokenize_messages_(prompt->get_array(), tools);
  }
  if (sample.tokens.empty()) sample.tokens = text_.tokenizer->encode(sample.prompt);
  sample.prompt_length = static_cast<int64_t>(sample.tokens.size());
}

Group UsersPrompts::read(const json::value& record, const Columns& columns) {
  const json::array* members = record.if_array();
  if (members == nullptr) throw net::FrameError("a group is a list of samples");
  if (static_cast<int64_t>(members->size()) != config_.n_samples_per_prompt) {
    throw net::FrameError(fmt::format("a group of {} samples; --n-samples-per-prompt is {}",
                                      members->size(), config_.n_samples_per_prompt));
  }
  Group group{.ordinal = buffer::kNewGroup, .samples = {}};
  for (std::size_t i = 0; i < members->size(); ++i) {
    const json::object* object = (*members)[i].if_object();
    if (object == nullptr) throw net::FrameError("a group is a list of samples");
    Sample before;
    before.index_in_group = static_cast<int64_t>(i);
    Sample sample = read_sample(*object, columns, before, limits_);
    const std::optional<int64_t> ordinal = take_mark(sample);
    const auto known = ordinal ? given_back_.find(*ordinal) : given_back_.end();
    if (i == 0 && known != given_back_.end()) group.ordinal = *ordinal;
    if (group.ordinal != buffer::kNewGroup && ordinal == group.ordinal) {
      sample = read_sample(*object, columns, known->second.samples[i], limits_);
      take_mark(sample);
    }
    tokenise(sample, object->if_contains("prompt"));
    group.samples.push_back(std::move(sample));
  }
  const bool is_finished = std::ranges::all_of(group.samples, [](const Sample& sample) {
    return sample.status == Status::kCompleted || sample.status == Status::kTruncated;
  });
  if (!is_finished) return group;
  for (const Sample& sample : group.samples) {
    check_sampled(sample, limits_);
    if (config_.rollout_top_p < 1 && sample.top_p_offsets.empty())
      throw net::FrameError(
          "a finished sample has no record of its nuclei, which --rollout-top-p "
          "trains with");
    if (config_.use_rollout_routing_replay && sample.routed_experts.empty())
      throw net::FrameError(
          "a finished sample has no record of its experts, which "
          "--use-rollout-routing-replay trains with");
  }
  return group;
}

std::vector<Group> UsersPrompts::take(int64_t count) {
  const Payload returned = call("get_samples", [count](Columns&) {
    return json::object{{"count", count}};
  });
  const json::value* records = returned.head.if_contains("groups");
  std::vector<Group> groups;
  try {
    if (records == nullptr || !records->is_array()) throw net::FrameError("no list of groups");
    if (static_cast<int64_t>(records->get_array().size()) > count) {
      throw net::FrameError(
          fmt::format("{} groups, where {} were asked for", records->get_array().size(), count));
    }
    for (const json::value& record : records->get_array())
      groups.push_back(read(record, returned.columns));
  } catch (const net::FrameError& error) {
    throw ConfigError(fmt::format("--data-source-path {}: get_samples: {}",
                                  config_.data_source_path, error.what()));
  }
  for (const Group& group : groups) given_back_.erase(group.ordinal);
  return groups;
}

void UsersPrompts::give_back(const std::vector<Group>& groups) {
  call("add_samples", [&groups](Columns& columns) {
    json::array records;
    for (const Group& group : groups) {
      json::array members = to_records(group, columns);
      mark(members, group.ordinal);
      records.push_back(std::move(members));
    }
    return json::object{{"groups", std::move(records)}};
  });
  for (const Group& group : groups) given_back_.insert_or_assign(group.ordinal, group);
}

void UsersPrompts::save(int64_t step) {
  call("save", [step](Columns&) { return json::object{{"rollout_id", step}}; });
}

void UsersPrompts::load(int64_t step, const std::vector<Group>& waiting,
                        const std::set<int64_t>& under_way) {
  call("load", [step](Columns&) { return json::object{{"rollout_id", step}}; });
  if (waiting.empty()) return;
  const Payload returned = call("buffer_length", [](Columns&) { return json::object(); });
  const json::value* length = returned.head.if_contains("length");
  const bool has_its_own = length != nullptr && length->is_int64() && length->get_int64() > 0;
  for (const Group& group : waiting) given_back_.insert_or_assign(group.ordinal, group);
  std::vector<Group> lacking;
  for (const Group& group : waiting)
    if (!has_its_own || under_way.contains(group.ordinal)) lacking.push_back(group);
  if (!lacking.empty()) give_back(lacking);
}

}  // namespace slime::plugin
