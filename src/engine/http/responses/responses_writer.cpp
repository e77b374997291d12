#include "engine/http/responses/responses_writer.h"

#include <fmt/format.h>

#include <ctime>
#include <optional>
#include <utility>

#include "engine/http/responses/reasoning_envelope.h"

namespace slime::engine {
namespace {

using Event = text::MessageEvent;
using Kind = Event::Kind;
using Outcome = ResponsesEnd::Outcome;

const char* status_of(Outcome outcome) {
  switch (outcome) {
    case Outcome::kCompleted:
      return "completed";
    case Outcome::kCutByLength:
    case Outcome::kAborted:
      return "incomplete";
    case Outcome::kFailed:
      break;
  }
  return "failed";
}

/// The arguments of a call, where they are an object.
std::optional<json::object> parsed_arguments(const std::string& text) {
  std::optional<json::value> value = try_parse_json(text);
  if (!value || !value->is_object()) return std::nullopt;
  return std::move(value->get_object());
}

}  // namespace

ResponsesWriter::ResponsesWriter(ResponsesForm form, const ResponsesTools& tools,
                                 LogprobsOf logprobs_of)
    : form_(std::move(form)), tools_(tools), logprobs_of_(std::move(logprobs_of)) {
  response_ = {{"id", "resp_" + form_.id},       {"object", "response"},
               {"created_at", form_.created_at}, {"status", "in_progress"},
               {"completed_at", nullptr},        {"error", nullptr},
               {"incomplete_details", nullptr}};
  for (const auto& member : form_.echo) response_.insert(member);
  response_["output"] = json::array();
  response_["usage"] = nullptr;
}

void ResponsesWriter::emit(std::string_view type, json::object members) {
  const std::int64_t number = sequence_++;
  if (!form_.streams) return;
  json::object event{{"type", type}, {"sequence_number", number}};
  for (auto& member : members) event.emplace(member.key(), std::move(member.value()));
  events_.push_back({std::string(type), json_text(event)});
}

void ResponsesWriter::emit_of_text(std::string_view type, json::object members) {
  if (!form_.streams) {
    ++sequence_;
    return;
  }
  const bool is_summary = open_.kind == Item::kReasoning && form_.summarises_reasoning;
  json::object all{{"item_id", open_.item.at("id")}, {"output_index", output_.size()}};
  if (open_.kind != Item::kCall) all[is_summary ? "summary_index" : "content_index"] = 0;
  for (auto& member : members) all.emplace(member.key(), std::move(member.value()));
  emit(type, std::move(all));
}

std::string ResponsesWriter::item_id(std::string_view prefix) const {
  return fmt::format("{}_{}_{}", prefix, form_.id, output_.size());
}

std::vector<ServerEvent> ResponsesWriter::begin() {
  emit("response.created", {{"response", response_}});
  emit("response.in_progress", {{"response", response_}});
  return std::exchange(events_, {});
}

std::vector<ServerEvent> ResponsesWriter::add(std::span<const Event> events) {
  for (const Event& event : events) add_event(event);
  return std::exchange(events_, {});
}

void ResponsesWriter::add_event(const Event& event) {
  switch (event.kind) {
    case Kind::kReasoning:
      if (open_.kind != Item::kReasoning) open_text(Item::kReasoning);
      return add_text(event);
    case Kind::kContent:
      if (open_.kind != Item::kMessage) open_text(Item::kMessage);
      return add_text(event);
    case Kind::kCall:
      return open_call(event);
    case Kind::kArguments:
      return add_arguments(is_custom() ? open_.custom_input.add(event.text) : event.text);
    case Kind::kCallEnd:
      return close("completed");
  }
}

void ResponsesWriter::open(Item kind, json::object item) {
  open_ = {.kind = kind, .item = std::move(item)};
  emit("response.output_item.added", {{"output_index", output_.size()}, {"item", open_.item}});
}

void ResponsesWriter::open_text(Item kind) {
  close("completed");
  if (kind == Item::kMessage) {
    open(kind, {{"id", item_id("msg")},
                {"type", "message"},
                {"status", "in_progress"},
                {"role", "assistant"},
                {"content", json::array()}});
    return emit_of_text("response.content_part.added", {{"part", part()}});
  }
  json::object item{{"id", item_id("rs")}, {"type", "reasoning"}, {"summary", json::array()}};
  item["content"] = json::array();
  item["status"] = "in_progress";
  open(kind, std::move(item));
  emit_of_text(form_.summarises_reasoning ? "response.reasoning_summary_part.added"
                                          : "response.content_part.added",
               {{"part", part()}});
}

/// The part that holds the text of the open item.
json::object ResponsesWriter::part() const {
  if (open_.kind == Item::kReasoning) {
    const char* type = form_.summarises_reasoning ? "summary_text" : "reasoning_text";
    return {{"type", type}, {"text", open_.text}};
  }
  json::object part{{"type", "output_text"}, {"text", open_.text}, {"annotations", json::array()}};
  if (logprobs_of_) part["logprobs"] = open_.logprobs;
  return part;
}

void ResponsesWriter::add_text(const Event& event) {
  open_.text += event.text;
  json::object members{{"delta", event.text}};
  if (open_.kind == Item::kReasoning) {
    return emit_of_text(form_.summarises_reasoning ? "response.reasoning_summary_text.delta"
                                                   : "response.reasoning_text.delta",
                        std::move(members));
  }
  json::array logprobs;
  if (logprobs_of_) logprobs = logprobs_of_(event.tokens);
  open_.logprobs.insert(open_.logprobs.end(), logprobs.begin(), logprobs.end());
  members["logprobs"] = std::move(logprobs);
  emit_of_text("response.output_text.delta", std::move(members));
}

/// A call of a tool that clients run themselves is one item, which opens when all of it is there.
void ResponsesWriter::open_call(const Event& event) {
  close("completed");
  const ResponsesTool* tool = tools_.find(event.name);
  const bool is_custom = tool != nullptr && tool->is_custom;
  json::object item{{"id", item_id(is_custom ? "ctc" : "fc")},
                    {"type", is_custom ? "custom_tool_call" : "function_call"},
                    {"status", "in_progress"},
                    {"call_id", event.id},
                    {"name", tool != nullptr ? tool->name : event.name}};
  if (tool != nullptr && !tool->name_space.empty()) item["namespace"] = tool->name_space;
  item[is_custom ? "input" : "arguments"] = "";
  if (tool != nullptr && tool->client_tool != nullptr) {
    open_ = {.kind = Item::kCall, .item = std::move(item), .tool = tool};
  } else {
    open(Item::kCall, std::move(item));
    open_.tool = tool;
  }
}

void ResponsesWriter::add_arguments(std::string text) {
  if (open_.kind != Item::kCall || text.empty()) return;
  open_.text += text;
  if (open_.tool != nullptr && open_.tool->client_tool != nullptr) return;
  emit_of_text(is_custom() ? "response.custom_tool_call_input.delta"
                           : "response.function_call_arguments.delta",
               {{"delta", std::move(text)}});
}

void ResponsesWriter::close_text() {
  const json::object closed = part();
  const json::value text = closed.at("text");
  if (open_.kind == Item::kMessage) {
    emit_of_text("response.output_text.done", {{"text", text}, {"logprobs", open_.logprobs}});
    emit_of_text("response.content_part.done", {{"part", closed}});
    open_.item["content"] = json::array{closed};
    return;
  }
  const bool is_summary = form_.summarises_reasoning;
  emit_of_text(is_summary ? "response.reasoning_summary_text.done" : "response.reasoning_text.done",
               {{"text", text}});
  emit_of_text(is_summary ? "response.reasoning_summary_part.done" : "response.content_part.done",
               {{"part", closed}});
  open_.item[is_summary ? "summary" : "content"] = json::array{closed};
  if (form_.packs_reasoning) open_.item["encrypted_content"] = pack_reasoning(open_.text);
}

void ResponsesWriter::close_call() {
  if (is_custom()) add_arguments(open_.custom_input.finish());
  const ClientTool* client_tool = open_.tool != nullptr ? open_.tool->client_tool : nullptr;
  if (client_tool != nullptr) {
    std::optional<json::object> arguments = parsed_arguments(open_.text);
    if (arguments) {
      open_.item = {{"id", open_.item.at("id")},
                    {"type", client_tool->call_type},
                    {"status", "in_progress"},
                    {"call_id", open_.item.at("call_id")},
                    {client_tool->member, to_action(*client_tool, *std::move(arguments))}};
    } else {  // a function call shows any arguments
      open_.item["arguments"] = open_.text;
    }
    return emit("response.output_item.added",
                {{"output_index", output_.size()}, {"item", open_.item}});
  }
  const json::value name = open_.item.at("name");
  if (is_custom()) {
    open_.item["input"] = open_.text;
    emit_of_text("response.custom_tool_call_input.done", {{"input", open_.text}});
  } else {
    open_.item["arguments"] = open_.text;
    emit_of_text("response.function_call_arguments.done",
                 {{"name", name}, {"arguments", open_.text}});
  }
}

void ResponsesWriter::close(std::string_view status) {
  if (open_.kind == Item::kNone) return;
  open_.kind == Item::kCall ? close_call() : close_text();
  open_.item["status"] = status;
  emit("response.output_item.done", {{"output_index", output_.size()}, {"item", open_.item}});
  output_.push_back(std::move(open_.item));
  open_ = {};
}

std::vector<ServerEvent> ResponsesWriter::finish(const ResponsesEnd& end) {
  const bool is_completed = end.outcome == Outcome::kCompleted;
  if (is_completed && open_.kind == Item::kNone && output_.empty()) open_text(Item::kMessage);
  close(is_completed ? "completed" : "incomplete");
  response_["output"] = std::move(output_);
  response_["status"] = status_of(end.outcome);
  response_["usage"] = end.usage;
  response_["metadata"] = end.metadata;
  if (is_completed) response_["completed_at"] = std::time(nullptr);
  if (end.outcome == Outcome::kCutByLength)
    response_["incomplete_details"] = {{"reason", "max_output_tokens"}};
  if (end.outcome == Outcome::kAborted) response_["incomplete_details"] = {{"reason", "abort"}};
  if (end.outcome == Outcome::kFailed)
    response_["error"] = {{"code", end.error_code}, {"message", end.error_message}};
  emit(fmt::format("response.{}", status_of(end.outcome)), {{"response", response_}});
  return std::exchange(events_, {});
}

}  // namespace slime::engine
