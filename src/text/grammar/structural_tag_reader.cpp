#include "text/grammar/structural_tag_reader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <string_view>

#include "core/error.h"
#include "core/field_reader.h"
#include "core/nearest_name.h"
#include "text/grammar/ebnf_reader.h"
#include "text/grammar/regex_reader.h"
#include "text/grammar/schema_reader.h"

namespace slime::text {
namespace {

enum class TagFieldKind : uint8_t {
  kText,     // not empty
  kAnyText,  // may be empty
  kTexts,    // a list of texts, none empty
  kFlag,
  kCount,  // a whole number, 0 or more
  kFormat,
  kTagFormats,  // a list, not empty
  kTags,        // a list of formats that are tags
  kMark,        // of a tag: a text or a token
  kMarks,       // of a tag: texts, one of which ends it, or a token
  kSchema,
  kStyle,
  kToken,  // an id, or the token's text
  kTokens,
  kRules,       // pairs of a text and a format
  kTokenRules,  // pairs of a token and a format
};

struct TagField {
  std::string_view name;
  TagFieldKind kind;
  bool is_required = false;
};

struct TagFormat {
  std::string_view type;
  std::span<const TagField> fields;
};

using K = TagFieldKind;
constexpr TagField kConstString[] = {{"value", K::kAnyText, true}};
constexpr TagField kJsonSchema[] = {{"json_schema", K::kSchema, true},
                                    {"style", K::kStyle},
                                    {"any_order", K::kFlag},
                                    {"max_whitespace_cnt", K::kCount},
                                    {"excludes", K::kTexts}};
constexpr TagField kRegex[] = {{"pattern", K::kText, true}};
constexpr TagField kGrammar[] = {{"grammar", K::kText, true}, {"syntax", K::kText}};
constexpr TagField kFreeText[] = {
    {"excludes", K::kTexts}, {"max_tokens", K::kCount}, {"max_chars", K::kCount}};
constexpr TagField kElements[] = {{"elements", K::kTagFormats, true}};
constexpr TagField kContent[] = {{"content", K::kFormat, true}};
constexpr TagField kRepeat[] = {
    {"content", K::kFormat, true}, {"min", K::kCount, true}, {"max", K::kCount, true}};
constexpr TagField kTag[] = {
    {"begin", K::kMark, true}, {"content", K::kFormat, true}, {"end", K::kMarks, true}};
constexpr TagField kTriggered[] = {{"triggers", K::kTexts, true},
                                   {"tags", K::kTags, true},
                                   {"excludes", K::kTexts},
                                   {"at_least_one", K::kFlag},
                                   {"stop_after_first", K::kFlag}};
constexpr TagField kSeparated[] = {{"tags", K::kTags, true},
                                   {"separator", K::kAnyText, true},
                                   {"at_least_one", K::kFlag},
                                   {"stop_after_first", K::kFlag}};
constexpr TagField kDispatch[] = {
    {"rules", K::kRules, true}, {"loop", K::kFlag}, {"excludes", K::kTexts}};
constexpr TagField kOneToken[] = {{"token", K::kToken, true}};
constexpr TagField kAnyTokens[] = {{"exclude_tokens", K::kTokens}, {"max_tokens", K::kCount}};
constexpr TagField kExcludeToken[] = {{"exclude_tokens", K::kTokens}};
constexpr TagField kTokenTriggered[] = {{"trigger_tokens", K::kTokens, true},
                                        {"tags", K::kTags, true},
                                        {"exclude_tokens", K::kTokens},
                                        {"at_least_one", K::kFlag},
                                        {"stop_after_first", K::kFlag}};
constexpr TagField kTokenDispatch[] = {
    {"rules", K::kTokenRules, true}, {"loop", K::kFlag}, {"exclude_tokens", K::kTokens}};

constexpr TagFormat kTagFormats[] = {
    {"const_string", kConstString},
    {"json_schema", kJsonSchema},
    {"regex", kRegex},
    {"grammar", kGrammar},
    {"any_text", kFreeText},
    {"sequence", kElements},
    {"or", kElements},
    {"optional", kContent},
    {"star", kContent},
    {"plus", kContent},
    {"repeat", kRepeat},
    {"tag", kTag},
    {"triggered_tags", kTriggered},
    {"tags_with_separator", kSeparated},
    {"dispatch", kDispatch},
    {"token", kOneToken},
    {"any_tokens", kAnyTokens},
    {"exclude_token", kExcludeToken},
    {"token_triggered_tags", kTokenTriggered},
    {"token_dispatch", kTokenDispatch},
};

/// How the members of an object are written. The engine has more, which were not tried.
constexpr auto kTagStyles =
    std::to_array<std::string_view>({"json", "qwen_xml", "minimax_xml", "deepseek_xml", "glm_xml"});

constexpr int64_t kMostCount = int64_t{1} << 30;

class TagReader final {
 public:
  TagReader(int max_whitespace, const std::string& where, const GrammarLimits& limits,
            SchemaUse& use)
      : max_whitespace_(std::max(max_whitespace, 1)), where_(where), limits_(limits), use_(use) {}

  json::value read(const json::value& tag) {
    if (!tag.is_object()) fail("#", fmt::format("must be an object, not {}", shown(tag)));
    const auto& object = tag.get_object();
    if (object.contains("structures")) return wrapped(format(older_form(object), "#/structures"));
    if (const auto* type = object.if_contains("type"); type != nullptr && *type != "structural_tag")
      fail("#/type", fmt::format("type must be \"structural_tag\", not {}", shown(*type)));
    const auto* inner = object.if_contains("format");
    if (inner == nullptr) fail("#", "has no \"format\"");
    return wrapped(format(*inner, "#/format"));
  }

 private:
  [[noreturn]] void fail(const std::string& place, std::string_view problem) const {
    throw ConfigError(fmt::format("{}, {}: {}", where_, place, problem));
  }

  static json::value wrapped(const json::object& format) {
    return json::object{{"type", "structural_tag"}, {"format", format}};
  }

  /// {"structures": [{"begin", "schema", "end"}], "triggers": [...]}
  json::value older_form(const json::object& object) const {
    const auto* structures = object.at("structures").if_array();
    const auto* triggers = object.if_contains("triggers");
    if (structures == nullptr || structures->empty() || triggers == nullptr)
      fail("#", "\"structures\" must be a list, not empty, beside \"triggers\"");
    json::array tags;
    for (const json::value& structure : *structures) {
      json::object tag{{"type", "tag"}};
      const auto* fields = structure.if_object();
      const auto* schema = fields == nullptr ? nullptr : fields->if_contains("schema");
      if (schema == nullptr) fail("#/structures", "each must have begin, schema and end");
      for (const char* name : {"begin", "end"}) {
        if (const auto* mark = fields->if_contains(name)) tag[name] = *mark;
      }
      tag["content"] = json::object{{"type", "json_schema"}, {"json_schema", *schema}};
      tags.push_back(tag);
    }
    return json::object{{"type", "triggered_tags"}, {"triggers", *triggers}, {"tags", tags}};
  }

  const TagFormat& kind_of(const json::object& given, const std::string& place,
                           std::string_view type_else) const {
    const auto* type = given.if_contains("type");
    if (type != nullptr && !type->is_string())
      fail(place + "/type", fmt::format("type must be a text, not {}", shown(*type)));
    const std::string_view name =
        type == nullptr ? type_else : std::string_view(type->get_string());
    std::vector<std::string_view> known;
    for (const TagFormat& kind : kTagFormats) {
      if (kind.type == name) return kind;
      known.push_back(kind.type);
    }
    fail(place + "/type",
         fmt::format("{} is no format; there are {}",
                     type == nullptr ? "a missing type" : fmt::format("\"{}\"", name),
                     fmt::join(known, ", ")));
  }

  json::object format(const json::value& given, const std::string& place,
                      std::string_view type_else = "") {
    if (!given.is_object())
      fail(place, fmt::format("a format must be an object, not {}", shown(given)));
    if (++num_formats_ > limits_.num_schemas)
      fail(place, fmt::format("more than {} formats", limits_.num_schemas));
    const auto& object = given.get_object();
    const TagFormat& kind = kind_of(object, place, type_else);
    for (const auto& member : object) {
      const auto is_it = [&](const TagField& field) { return field.name == member.key(); };
      if (member.key() == "type" || std::any_of(kind.fields.begin(), kind.fields.end(), is_it))
        continue;
      std::vector<std::string_view> known;
      for (const TagField& field : kind.fields) known.push_back(field.name);
      fail(fmt::format("{}/{}", place, std::string_view(member.key())),
           fmt::format("{} has no such field; it has {}", kind.type, fmt::join(known, ", ")));
    }
    json::object read{{"type", kind.type}};
    const int64_t counted = kind.type == "repeat" ? repetition(object, place) : 1;
    repetition_ *= counted;
    if (repetition_ > limits_.repetition)
      fail(place, fmt::format("counts in counts are {} in all, at most {} are allowed", repetition_,
                              limits_.repetition));
    for (const TagField& field : kind.fields) {
      const std::string at = fmt::format("{}/{}", place, field.name);
      const auto* value = object.if_contains(field.name);
      if (value != nullptr && !value->is_null())
        read_field(field, *value, at, object, read);
      else if (field.is_required)
        fail(at, fmt::format("{} must have it", kind.type));
    }
    repetition_ /= counted;
    if (kind.type == "regex") return as_grammar(ebnf_of_regex(read, place));
    if (kind.type == "grammar") check_grammar(read, place);
    if (kind.type == "json_schema" && !read.contains("max_whitespace_cnt"))
      read["max_whitespace_cnt"] = max_whitespace_;
    return read;
  }

  int64_t repetition(const json::object& object, const std::string& place) const {
    int64_t most = 1;
    for (const char* name : {"min", "max"}) {
      const auto* value = object.if_contains(name);
      if (value == nullptr) continue;
      const auto count = whole_number(*value);
      if (!count || *count < 0)
        fail(fmt::format("{}/{}", place, name), "must be a whole number, 0 or more");
      most = std::max(most, std::min(*count, kMostCount));
    }
    return most;
  }

  void read_field(const TagField& field, const json::value& value, const std::string& place,
                  const json::object& format_fields, json::object& read) {
    const std::string_view name = field.name;
    switch (field.kind) {
      case K::kText:
      case K::kAnyText:
        read[name] = text(value, place, field.kind == K::kAnyText);
        return;
      case K::kTexts:
        read[name] = texts(value, place);
        return;
      case K::kFlag:
        if (!value.is_bool())
          fail(place, fmt::format("must be true or false, not {}", shown(value)));
        read[name] = value;
        return;
      case K::kCount:
        read[name] = count(value, place);
        return;
      case K::kFormat:
        read[name] = format(value, place);
        return;
      case K::kTagFormats:
      case K::kTags:
        read[name] = formats(value, place, field.kind == K::kTags ? "tag" : "");
        return;
      case K::kMark:
      case K::kMarks:
        read[name] = mark(value, place, field.kind == K::kMarks);
        return;
      case K::kSchema:
        read[name] = schema(value, place, format_fields);
        return;
      case K::kStyle:
        read[name] = style(value, place);
        return;
      case K::kToken:
        read[name] = token(value, place);
        return;
      case K::kTokens: {
        json::array tokens;
        for (const json::value& one : list(value, place)) tokens.push_back(token(one, place));
        read[name] = tokens;
        return;
      }
      case K::kRules:
      case K::kTokenRules:
        read[name] = rules(value, place, field.kind == K::kTokenRules);
        return;
    }
  }

  json::value text(const json::value& value, const std::string& place, bool may_be_empty) const {
    if (!value.is_string() || (!may_be_empty && value.get_string().empty()))
      fail(place, fmt::format("must be a text{}, not {}", may_be_empty ? "" : ", not empty",
                              shown(value)));
    if (value.get_string().find('\0') != json::string::npos)
      fail(place, "holds a NUL character, which cannot be matched");
    return value;
  }

  const json::array& list(const json::value& value, const std::string& place) const {
    if (!value.is_array()) fail(place, fmt::format("must be a list, not {}", shown(value)));
    return value.get_array();
  }

  json::array texts(const json::value& value, const std::string& place) const {
    json::array all;
    for (const json::value& one : list(value, place)) all.push_back(text(one, place, false));
    return all;
  }

  json::value count(const json::value& value, const std::string& place) const {
    const auto whole = whole_number(value);
    if (!whole || *whole < 0 || *whole > kMostCount)
      fail(place,
           fmt::format("must be a whole number from 0 to {}, not {}", kMostCount, shown(value)));
    return *whole;
  }

  json::array formats(const json::value& value, const std::string& place, std::string_view type) {
    json::array all;
    const json::array& given = list(value, place);
    if (given.empty()) fail(place, "must not be empty");
    for (std::size_t i = 0; i < given.size(); ++i)
      all.push_back(format(given[i], fmt::format("{}/{}", place, i), type));
    return all;
  }

  json::value mark(const json::value& value, const std::string& place, bool may_be_many) {
    if (value.is_object()) return format(value, place, "token");
    if (!may_be_many || !value.is_array()) return text(value, place, true);
    json::array all;
    for (const json::value& one : value.get_array()) all.push_back(text(one, place, true));
    if (all.empty()) fail(place, "must not be empty");
    return all;
  }

  json::value style(const json::value& value, const std::string& place) const {
    const bool is_known = value.is_string() && std::find(kTagStyles.begin(), kTagStyles.end(),
                                                         value.get_string()) != kTagStyles.end();
    if (!is_known)
      fail(place, fmt::format("style must be one of {}, not {}", fmt::join(kTagStyles, ", "),
                              shown(value)));
    return value;
  }

  json::value schema(const json::value& value, const std::string& place,
                     const json::object& format_fields) {
    const auto* style_field = format_fields.if_contains("style");
    const bool is_json = style_field == nullptr || style_field->is_null() || *style_field == "json";
    return read_schema(value, is_json ? SchemaForm::kJson : SchemaForm::kParameters,
                       fmt::format("{}, {}", where_, place), limits_, use_);
  }

  json::value token(const json::value& value, const std::string& place) const {
    if (value.is_string()) return text(value, place, false);
    const auto id = whole_number(value);
    if (!id || *id < 0 || *id > INT32_MAX)
      fail(place, fmt::format("must be a token's id or its text, not {}", shown(value)));
    return *id;
  }

  json::array rules(const json::value& value, const std::string& place, bool is_of_tokens) {
    json::array all;
    for (const json::value& rule : list(value, place)) {
      const std::string at = fmt::format("{}/{}", place, all.size());
      if (list(rule, at).size() != 2) fail(at, "must be a pair of a trigger and a format");
      const auto& pair = rule.get_array();
      all.push_back(json::array{is_of_tokens ? token(pair[0], at) : text(pair[0], at, false),
                                format(pair[1], at + "/1")});
    }
    return all;
  }

  static json::object as_grammar(const std::string& ebnf) {
    return {{"type", "grammar"}, {"grammar", ebnf}};
  }

  std::string ebnf_of_regex(const json::object& read, const std::string& place) const {
    const std::string at = fmt::format("{}, {}/pattern", where_, place);
    return "root ::= " + ebnf_text(read_whole_regex(read.at("pattern").get_string(), at, limits_));
  }

  void check_grammar(const json::object& read, const std::string& place) const {
    if (const auto* syntax = read.if_contains("syntax"); syntax != nullptr && *syntax != "ebnf")
      fail(place + "/syntax", fmt::format("syntax must be \"ebnf\", not {}", shown(*syntax)));
    check_ebnf(read.at("grammar").get_string(), fmt::format("{}, {}/grammar", where_, place),
               limits_);
  }

  int max_whitespace_;
  const std::string& where_;
  const GrammarLimits& limits_;
  SchemaUse& use_;
  int num_formats_ = 0;
  int64_t repetition_ = 1;  // of the formats that are being read
};

}  // namespace

json::value read_structural_tag(const json::value& tag, int max_whitespace,
                                const std::string& where, const GrammarLimits& limits,
                                SchemaUse& use) {
  return TagReader(max_whitespace, where, limits, use).read(tag);
}

}  // namespace slime::text
