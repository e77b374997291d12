#include "engine/http/grammar_fields.h"

#include <fmt/format.h>

#include <array>

#include "core/json.h"
#include "engine/sampling_json.h"
#include "engine/sampling_params.h"

namespace slime::engine {
namespace {

constexpr std::string_view kAnyObjectSchema = R"({"type":"object"})";
constexpr std::size_t kMostGrammarChoices = 10000;

/// What the request's grammar is called; empty: it has none.
std::string grammar_name(const GenerateRequest& request) {
  const auto given = grammars_of(request.sampling);
  if (given.empty()) return {};
  return request.grammar_field.empty() ? std::string(given.front()) : request.grammar_field;
}

/// The place of a new grammar, or null after the problem is told: one is enough.
std::string* place_for(std::string SamplingParams::*kind, std::string_view name,
                       const FieldReader& fields, GenerateRequest& request) {
  if (const std::string other = grammar_name(request); !other.empty()) {
    fields.note(name, fmt::format("and {} are two grammars; a request may have one", other));
    return nullptr;
  }
  request.grammar_field = name;
  return &(request.sampling.*kind);
}

void set_source(std::string text, std::string SamplingParams::*kind, std::string_view name,
                const FieldReader& fields, GenerateRequest& request) {
  if (text.size() > SamplingLimits::kMaxGrammarBytes)
    return fields.note(name, fmt::format("may have {} bytes", SamplingLimits::kMaxGrammarBytes));
  if (std::string* place = place_for(kind, name, fields, request)) *place = std::move(text);
}

/// JSON as it stands, or as a text that holds it.
void set_json_source(const json::value& value, std::string SamplingParams::*kind,
                     std::string_view name, const FieldReader& fields, GenerateRequest& request) {
  if (const json::string* text = value.if_string()) {
    if (text->empty()) return fields.note(name, "must not be empty");
    return set_source(std::string(*text), kind, name, fields, request);
  }
  if (!value.is_object() && !value.is_bool())
    return fields.note(name, "must be a JSON schema: an object, or a text that holds one");
  set_source(json_text(value), kind, name, fields, request);
}

void set_choice(const FieldReader& in, std::string_view member, std::string_view name,
                const FieldReader& fields, GenerateRequest& request) {
  const json::array* list = in.array(member);
  if (list == nullptr) return;
  if (list->empty() || list->size() > kMostGrammarChoices)
    return fields.note(name, fmt::format("must have 1 to {} texts", kMostGrammarChoices));
  std::string grammar = "root ::= ";
  for (const json::value& choice : *list) {
    if (!choice.is_string() || choice.get_string().empty())
      return fields.note(name, "must be a list of texts, none of them empty");
    if (&choice != &list->front()) grammar += " | ";
    grammar += json_text(choice);
  }
  set_source(std::move(grammar), &SamplingParams::ebnf, name, fields, request);
}

/// The members of `in` by vLLM's names behind `prefix`: "guided_" or nothing.
void read_vllm(const FieldReader& in, std::string_view prefix, std::string_view path,
               const FieldReader& fields, GenerateRequest& request) {
  const auto member = [&](std::string_view name) { return fmt::format("{}{}", prefix, name); };
  const auto place = [&](std::string_view name) {
    return fmt::format("{}{}{}", path, prefix, name);
  };
  if (const json::value* schema = in.find(member("json")))
    set_json_source(*schema, &SamplingParams::json_schema, place("json"), fields, request);
  const auto read_text = [&](std::string_view name, std::string SamplingParams::*kind) {
    const auto text = in.text(member(name), SamplingLimits::kMaxGrammarBytes);
    if (!text) return;
    if (text->empty()) return in.note(member(name), "must not be empty");
    set_source(*text, kind, place(name), fields, request);
  };
  read_text("regex", &SamplingParams::regex);
  read_text("grammar", &SamplingParams::ebnf);
  set_choice(in, member("choice"), place("choice"), fields, request);
  if (in.boolean(member("json_object")).value_or(false)) {
    set_source(std::string(kAnyObjectSchema), &SamplingParams::json_schema, place("json_object"),
               fields, request);
  }
  in.refuse(
      member("whitespace_pattern"),
      "is not supported: white space between the parts of JSON is the model's choice, or none "
      "with --constrained-json-disable-any-whitespace");
}

}  // namespace

void read_structured_outputs(const FieldReader& fields, GenerateRequest& request) {
  constexpr auto kMembers = std::to_array<std::string_view>(
      {"json", "regex", "grammar", "choice", "json_object", "whitespace_pattern", "structural_tag",
       "disable_fallback", "disable_any_whitespace", "disable_additional_properties", "_backend",
       "_backend_was_auto"});
  const auto outputs = fields.fields("structured_outputs");
  if (!outputs) return;
  outputs->refuse_unknown(kMembers);
  read_vllm(*outputs, "", "structured_outputs.", fields, request);
  if (const json::value* tag = outputs->find("structural_tag")) {
    set_json_source(*tag, &SamplingParams::structural_tag, "structured_outputs.structural_tag",
                    fields, request);
  }
  outputs->refuse(
      "disable_any_whitespace",
      "is not supported for one request; --constrained-json-disable-any-whitespace is for "
      "all");
}

void read_output_format(const FieldReader& format, std::string_view name, const FieldReader& fields,
                        GenerateRequest& request) {
  constexpr auto kTypes =
      std::to_array<std::string_view>({"text", "json_object", "json_schema", "structural_tag"});
  const auto type = format.required().one_of("type", kTypes);
  if (!type || *type == "text") return;
  if (*type == "json_object") {
    return set_source(std::string(kAnyObjectSchema), &SamplingParams::json_schema, name, fields,
                      request);
  }
  if (*type == "structural_tag") {
    const json::value tag(format.raw());
    return set_source(json_text(tag), &SamplingParams::structural_tag, name, fields, request);
  }
  const auto inner = format.fields("json_schema");
  if (!inner && format.has("json_schema")) return;  // told
  const FieldReader& holder = inner ? *inner : format;
  const std::string path = fmt::format("{}{}.schema", name, inner ? ".json_schema" : "");
  if (const json::value* schema = holder.find("schema")) {
    set_json_source(*schema, &SamplingParams::json_schema, path, fields, request);
  } else {
    fields.note(path, "must be a JSON schema");
  }
}

void read_grammar_fields(const FieldReader& fields, GenerateRequest& request) {
  if (const auto format = fields.fields("response_format"))
    read_output_format(*format, "response_format", fields, request);
  read_structured_outputs(fields, request);
  read_vllm(fields, "guided_", "", fields, request);
}

}  // namespace slime::engine
