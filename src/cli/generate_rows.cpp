#include "cli/generate_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "core/field_reader.h"

namespace slime::cli {
namespace {

/// Of a row, beside its prompt; everything else is metadata.
constexpr auto kOwnFields =
    std::to_array<std::string_view>({"label", "metadata", "tools", "sampling_params", "options"});

/// What an earlier `slime generate` or `slime score` has added.
constexpr auto kAnswerFields = std::to_array<std::string_view>(
    {"response", "status", "group", "failure", "score", "reward", "reason"});

template <std::size_t N>
bool is_among(const std::array<std::string_view, N>& names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

std::string prompt_key(const json::object& line, const RowOptions& options) {
  for (const std::string& key : {options.input_key, std::string("text"), std::string("messages")})
    if (line.contains(key)) return key;
  throw ConfigError(
      fmt::format("no field \"{}\" with the prompt (--input-key)", options.input_key));
}

/// The prompt as a field of POST /generate, or of `slime generate`.
void add_prompt(const json::value& prompt, const json::object& line, const RowOptions& options,
                json::object& request) {
  if (!prompt.is_string() && !prompt.is_array())
    throw ConfigError("the prompt should be a text or a list of messages");
  if (prompt.is_string() && !options.applies_template) {
    request["text"] = prompt;
    return;
  }
  request["messages"] =
      prompt.is_array()
          ? prompt
          : json::value(json::array{json::object{{"role", "user"}, {"content", prompt}}});
  json::object template_options;
  const FieldReader fields(line, "");
  if (const json::object* given = fields.object("options")) template_options = *given;
  if (line.contains("tools")) template_options["tools"] = line.at("tools");
  if (!template_options.empty()) request["options"] = std::move(template_options);
}

}  // namespace

RowRequest to_request(const json::object& line, int64_t number, const RowOptions& options) {
  const std::string key = prompt_key(line, options);
  const FieldReader fields(line, "");
  RowRequest made;
  json::object sampling = options.sampling_params;
  if (const json::object* own = fields.object("sampling_params"))
    for (const auto& each : *own) sampling[each.key()] = each.value();
  if (options.samples > 1) sampling["n"] = options.samples;
  add_prompt(line.at(key), line, options, made.request);
  made.request["sampling_params"] = std::move(sampling);
  json::object metadata;
  if (const json::object* given = fields.object("metadata")) metadata = *given;
  for (const auto& each : line) {
    const std::string_view name = each.key();
    if (name != key && !is_among(kOwnFields, name) && !is_among(kAnswerFields, name))
      metadata[name] = each.value();
  }
  made.row["prompt"] = line.at(key);
  made.row["response"] = "";
  if (const json::value* label = line.if_contains("label")) made.row["label"] = *label;
  made.row["status"] = "failed";
  made.row["group"] = number;
  if (line.contains("tools")) made.row["tools"] = line.at("tools");
  made.row["metadata"] = std::move(metadata);
  return made;
}

json::object to_answered_row(const json::object& row, const json::object& answer) {
  json::object answered = row;
  if (const json::value* error = answer.if_contains("error")) {
    answered["failure"] = error->is_object() ? error->get_object().at("message") : *error;
    return answered;
  }
  answered["response"] = answer.at("text");
  const json::value& finish = answer.at("meta_info").as_object().at("finish_reason");
  const std::string_view kind = finish.as_object().at("type").as_string();
  answered["status"] = kind == "stop" ? "completed" : kind == "length" ? "truncated" : "failed";
  if (answered.at("status") == "failed" && finish.as_object().contains("message"))
    answered["failure"] = finish.as_object().at("message");
  return answered;
}

}  // namespace slime::cli
