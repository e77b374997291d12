#include "text/messages/argument_grammar.h"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/messages/tag_format.h"
#include "text/messages/tool_schemas.h"

namespace slime::text {
namespace {

constexpr int kMostReferences = 16;

/// A tool's parameters: a schema whose references lead into itself.
class ToolParameters final {
 public:
  ToolParameters(const json::object& function)
      : name_(function.at("name").as_string()),
        types_(json::array{json::object{{"type", "function"}, {"function", function}}}) {
    const json::value* parameters = function.if_contains("parameters");
    if (parameters != nullptr && parameters->is_object()) {
      schema_ = parameters->get_object();
    } else {
      schema_ = {{"type", "object"}, {"properties", json::object()}};
    }
  }

  const json::object& schema() const { return schema_; }

  struct ToolParameter {
    std::string key;
    json::value schema;
    bool is_required = false;
    bool may_be_text = false;
  };
  /// Nothing: the schema does not say them.
  std::optional<std::vector<ToolParameter>> all() const {
    const json::value* properties = schema_.if_contains("properties");
    if (properties == nullptr || !properties->is_object()) return std::nullopt;
    std::vector<ToolParameter> all;
    for (const auto& [key, schema] : properties->get_object()) {
      all.push_back({.key = key,
                     .schema = schema,
                     .is_required = is_required(key),
                     .may_be_text = (types_.types_of(name_, key) & JsonTypes::kString) != 0});
    }
    return all;
  }

  /// The schema of a value on its own: with the definitions that it may refer to.
  json::value alone(const json::value& schema) const {
    if (!schema.is_object()) return schema;
    json::object with = schema.get_object();
    for (const char* name : {"$defs", "definitions"}) {
      const json::value* definitions = schema_.if_contains(name);
      if (definitions != nullptr && !with.contains(name)) with[name] = *definitions;
    }
    return with;
  }

  /// What text a parameter may be, by enum, const and pattern; any where they do not say it.
  json::object text_of(const json::value& given) const {
    const json::object* schema = resolved(given);
    if (schema == nullptr) return format_of_any_text();
    json::array texts;
    if (const json::value* value = schema->if_contains("const")) texts.push_back(*value);
    if (const json::value* values = schema->if_contains("enum"); values && values->is_array())
      texts = values->get_array();
    const bool are_texts = !texts.empty() && std::ranges::all_of(texts, [](const auto& text) {
      return text.is_string() && !text.get_string().empty();
    });
    if (are_texts) {
      for (json::value& text : texts) text = format_of_text(std::string_view(text.get_string()));
      return format_of_choice(std::move(texts));
    }
    const json::value* pattern = schema->if_contains("pattern");
    if (pattern != nullptr && pattern->is_string() && !pattern->get_string().empty())
      return format_of_regex(std::string_view(pattern->get_string()));
    return format_of_any_text();
  }

 private:
  bool is_required(std::string_view key) const {
    const json::value* required = schema_.if_contains("required");
    return required != nullptr && required->is_array() &&
           std::ranges::any_of(required->get_array(), [&](const json::value& name) {
             return name.is_string() && std::string_view(name.get_string()) == key;
           });
  }

  /// Behind "#/$defs/NAME".
  const json::object* resolved(const json::value& given) const {
    const json::object* schema = given.if_object();
    for (int i = 0; schema != nullptr && i < kMostReferences; ++i) {
      const json::value* reference = schema->if_contains("$ref");
      if (reference == nullptr || !reference->is_string()) return schema;
      const std::string_view path = reference->get_string();
      schema = nullptr;
      for (const std::string_view name :
           {std::string_view("$defs"), std::string_view("definitions")}) {
        const std::string prefix = "#/" + std::string(name) + "/";
        const json::value* definitions = schema_.if_contains(name);
        if (!path.starts_with(prefix) || definitions == nullptr || !definitions->is_object())
          continue;
        const json::value* target =
            definitions->get_object().if_contains(path.substr(prefix.size()));
        schema = target == nullptr ? nullptr : target->if_object();
      }
    }
    return nullptr;
  }

  std::string name_;
  ToolSchemas types_;
  json::object schema_;
};

using ToolParameter = ToolParameters::ToolParameter;

std::string with_kind(std::string_view text, bool is_string) {
  constexpr std::string_view kPlace = "IS_STRING";
  std::string out(text);
  if (const auto at = out.find(kPlace); at != std::string::npos)
    out.replace(at, kPlace.size(), is_string ? "true" : "false");
  return out;
}

json::object tagged_parameter(const ParameterTags& tags, const ToolParameters& all,
                              const ToolParameter& one) {
  const std::string begin =
      std::string(tags.key_open) + one.key + with_kind(tags.key_close, one.may_be_text);
  json::object value =
      one.may_be_text ? all.text_of(one.schema) : format_of_schema(all.alone(one.schema));
  return format_of_tag(begin, std::move(value), tags.value_close);
}

/// ToolParameters of any names, all of them text.
json::object any_tagged(const ParameterTags& tags) {
  const json::object key = format_of_regex("[^<>\"\\n]{1,64}");
  json::object inside =
      format_of_row({key, format_of_text(with_kind(tags.key_close, true)), format_of_any_text()});
  return format_of_repetition("star",
                              format_of_tag(tags.key_open, std::move(inside), tags.value_close));
}

json::object tagged_arguments(const ParameterTags& tags, const ToolParameters& parameters,
                              bool is_bound) {
  const auto all = parameters.all();
  if (!all || !is_bound) return any_tagged(tags);
  json::array elements;
  for (const ToolParameter& one : *all) {
    json::object parameter = tagged_parameter(tags, parameters, one);
    elements.push_back(one.is_required ? std::move(parameter)
                                       : format_of_repetition("optional", std::move(parameter)));
  }
  return elements.empty() ? format_of_text("") : format_of_row(std::move(elements));
}

/// Gemma's strings have marks of their own; other values are JSON. Lists of text are lists of those.
json::object gemma_value(const ToolParameters& all, const json::value& schema, bool may_be_text) {
  constexpr std::string_view kQuote = "<|\"|>";
  if (may_be_text) return format_of_tag(kQuote, all.text_of(schema), kQuote);
  const json::object* object = schema.if_object();
  const json::value* items = object == nullptr ? nullptr : object->if_contains("items");
  const json::object* item = items == nullptr ? nullptr : items->if_object();
  const json::value* type = item == nullptr ? nullptr : item->if_contains("type");
  if (type != nullptr && *type == "string") {
    const json::object text = format_of_tag(kQuote, all.text_of(*items), kQuote);
    json::object more = format_of_repetition("star", format_of_row({format_of_text(","), text}));
    json::object list = format_of_row({text, std::move(more)});
    return format_of_row({format_of_text("["), format_of_repetition("optional", std::move(list)),
                          format_of_text("]")});
  }
  return format_of_schema(all.alone(schema));
}

/// Separated by commas. A trailing one, which both forms may have, keeps it short: which of several
/// optional parameters comes first does not matter.
json::object listed_arguments(ArgumentForm form, const ToolParameters& parameters) {
  const bool is_python = form == ArgumentForm::kPython;
  const std::string_view between = is_python ? ", " : ",";
  const auto all = parameters.all().value_or(std::vector<ToolParameter>());
  const auto value_of = [&](const ToolParameter& one) {
    const std::string key = one.key + (is_python ? "=" : ":");
    json::object value = is_python ? format_of_schema(parameters.alone(one.schema))
                                   : gemma_value(parameters, one.schema, one.may_be_text);
    return format_of_row({format_of_text(key), std::move(value)});
  };
  const auto first = std::ranges::find_if(all, &ToolParameter::is_required);
  json::array elements;
  if (first != all.end()) elements.push_back(value_of(*first));
  for (auto one = all.begin(); one != all.end(); ++one) {
    if (one == first) continue;
    json::object next = first != all.end()
                            ? format_of_row({format_of_text(between), value_of(*one)})
                            : format_of_row({value_of(*one), format_of_text(between)});
    elements.push_back(one->is_required ? std::move(next)
                                        : format_of_repetition("optional", std::move(next)));
  }
  return elements.empty() ? format_of_text("") : format_of_row(std::move(elements));
}

}  // namespace

json::object argument_grammar(const CallSyntax& syntax, const json::object& function,
                              bool is_bound) {
  const ToolParameters parameters(function);
  switch (syntax.form) {
    case ArgumentForm::kJson:
      return format_of_schema(is_bound ? parameters.schema() : json::object{{"type", "object"}});
    case ArgumentForm::kTagged:
      return tagged_arguments(syntax.tags, parameters, is_bound);
    case ArgumentForm::kPython:
    case ArgumentForm::kGemma:
      return listed_arguments(syntax.form, parameters);
  }
  return format_of_any_text();
}

}  // namespace slime::text
