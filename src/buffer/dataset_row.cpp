#include "buffer/dataset_row.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string>
#include <vector>

#include "buffer/known_schema.h"
#include "core/error.h"

namespace slime::buffer {
namespace {

std::string known_keys(const json::object& row) {
  constexpr std::size_t kMostShown = 12;
  std::vector<std::string> keys;
  for (const auto& member : row) {
    if (keys.size() == kMostShown) {
      keys.emplace_back("...");
      break;
    }
    keys.emplace_back(member.key());
  }
  return keys.empty() ? "the row is empty" : fmt::format("the row has {}", fmt::join(keys, ", "));
}

/// The member of an object, or the element of a list, that one part of a path names; null: none.
const json::value* part_of(const json::value& whole, std::string_view name) {
  if (const json::object* object = whole.if_object()) return object->if_contains(name);
  const json::array* list = whole.if_array();
  std::size_t index = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), index);
  const bool is_index = error == std::errc() && end == name.data() + name.size();
  return list != nullptr && is_index && index < list->size() ? &(*list)[index] : nullptr;
}

const json::value& required(const json::object& row, std::string_view key, std::string_view flag,
                            std::string_view where) {
  const json::value* value = find_field(row, key);
  if (value == nullptr) {
    throw ConfigError(
        fmt::format("{}: no field \"{}\" ({}); {}", where, key, flag, known_keys(row)));
  }
  return *value;
}

bool is_whole_number(const json::value& value) {
  return value.is_int64() || value.is_uint64() || big_integer_digits(value) != nullptr;
}

bool is_list_of_objects(const json::value& value) {
  const json::array* list = value.if_array();
  return list != nullptr && !list->empty() &&
         std::all_of(list->begin(), list->end(),
                     [](const json::value& element) { return element.is_object(); });
}

/// Throws ConfigError with what is wrong with a field that is neither a string nor messages.
[[noreturn]] void refuse_messages(const json::value& value, std::string_view key,
                                  std::string_view flag, std::string_view where) {
  const json::array* list = value.if_array();
  throw ConfigError(fmt::format(
      "{}: field \"{}\" ({}) {}", where, key, flag,
      list != nullptr && list->empty()
          ? "is an empty list; it should be a string or a list of messages, at least one"
          : "should be a string or a list of messages"));
}

/// A string or messages: what a model is to say.
const json::value& response_of(const json::object& row, std::string_view key, std::string_view flag,
                               std::string_view where) {
  const json::value& response = required(row, key, flag, where);
  if (!response.is_string() && !is_list_of_objects(response))
    refuse_messages(response, key, flag, where);
  return response;
}

std::string_view role_in(const json::array& messages, std::size_t place) {
  const json::value* role = messages[place].get_object().if_contains("role");
  return role != nullptr && role->is_string() ? std::string_view(role->get_string())
                                              : std::string_view();
}

std::size_t num_common(const json::array& a, const json::array& b) {
  std::size_t count = 0;
  while (count < std::min(a.size(), b.size()) && a[count] == b[count]) ++count;
  return count;
}

/// How many messages of a conversation are the prompt of its row; nothing where it does not begin
/// with it.
std::optional<std::size_t> length_of_prompt(const json::array& conversation,
                                            const json::value& prompt) {
  if (const json::array* messages = prompt.if_array()) {
    const bool is_there = messages->size() < conversation.size() &&
                          num_common(conversation, *messages) == messages->size();
    return is_there ? std::optional(messages->size()) : std::nullopt;
  }
  for (std::size_t i = 0; i + 1 < conversation.size(); ++i) {
    const std::string_view role = role_in(conversation, i);
    if (role == "system" || role == "developer") continue;
    const json::value* content = conversation[i].get_object().if_contains("content");
    const bool is_prompt = role == "user" && content != nullptr && *content == prompt;
    return is_prompt ? std::optional(i + 1) : std::nullopt;
  }
  return std::nullopt;
}

/// Whether messages go on from a prompt, as opposed to telling the conversation from its beginning.
bool goes_on(const json::array& messages, const json::value& prompt) {
  const std::string_view first = role_in(messages, 0);
  if (first == "assistant" || first == "tool") return true;
  const json::array* before = prompt.if_array();
  return before != nullptr && role_in(*before, before->size() - 1) == "assistant";
}

/// Makes a pair of whole conversations a prompt and two continuations.
void split_pair(DatasetRow& row, const json::object& object, const RowKeys& keys,
                std::string_view where) {
  json::array* chosen = row.metadata[keys.chosen].if_array();
  json::array* rejected = row.metadata[keys.rejected].if_array();
  const bool has_prompt = !row.prompt.is_null();
  const auto is_whole = [&](const json::array* messages) {
    return messages != nullptr && (!has_prompt || length_of_prompt(*messages, row.prompt) ||
                                   !goes_on(*messages, row.prompt));
  };
  if (!is_whole(chosen) && !is_whole(rejected)) {
    if (!has_prompt) required(object, keys.input, "--input-key", where);
    return;
  }
  if (!is_whole(chosen) || !is_whole(rejected)) {
    throw ConfigError(
        fmt::format("{}: one of \"{}\" and \"{}\" is a whole conversation; both should be, or none",
                    where, keys.chosen, keys.rejected));
  }
  // Each side keeps at least one message, its answer.
  const std::size_t common =
      std::min({num_common(*chosen, *rejected), chosen->size() - 1, rejected->size() - 1});
  if (has_prompt) {
    const auto of_chosen = length_of_prompt(*chosen, row.prompt),
               of_rejected = length_of_prompt(*rejected, row.prompt);
    if (!of_chosen || of_chosen != of_rejected || *of_chosen > common) {
      throw ConfigError(fmt::format(
          "{}: the conversations \"{}\" and \"{}\" should both begin with \"{}\" (--input-key)",
          where, keys.chosen, keys.rejected, keys.input));
    }
  }
  if (common == 0) {
    throw ConfigError(fmt::format(
        "{}: the conversations \"{}\" and \"{}\" have no message in common, so there is "
        "no prompt; a field \"{}\" (--input-key) would be one",
        where, keys.chosen, keys.rejected, keys.input));
  }
  const auto end = static_cast<std::ptrdiff_t>(common);
  row.prompt = json::array(chosen->begin(), chosen->begin() + end);
  chosen->erase(chosen->begin(), chosen->begin() + end);
  rejected->erase(rejected->begin(), rejected->begin() + end);
}

json::array read_tools(const json::value& field, const RowKeys& keys, std::string_view where) {
  json::value tools = field;
  if (const json::string* text = field.if_string(); text != nullptr) {
    if (text->empty()) return {};
    tools = parse_json(*text, fmt::format("{}: field \"{}\"", where, keys.tools));
  }
  if (tools.is_null()) return {};
  if (!tools.is_array()) {
    throw ConfigError(fmt::format(
        "{}: field \"{}\" (--tool-key) should be a list of tools or a string with its JSON", where,
        keys.tools));
  }
  return std::move(tools.get_array());
}

}  // namespace

const json::value* find_field(const json::object& row, std::string_view key) {
  if (const json::value* field = row.if_contains(key)) return field;
  std::size_t dot = key.find('.');
  if (dot == std::string_view::npos) return nullptr;
  const json::value* field = row.if_contains(key.substr(0, dot));
  while (field != nullptr && dot != std::string_view::npos) {
    key.remove_prefix(dot + 1);
    dot = key.find('.');
    field = part_of(*field, key.substr(0, dot));
  }
  return field;
}

void rename_fields(json::object& row, const std::vector<std::pair<std::string, std::string>>& names,
                   std::string_view where) {
  for (const auto& [before, after] : names) {
    const json::value* field = find_field(row, before);
    if (field == nullptr && row.contains(after)) continue;
    if (field == nullptr) {
      throw ConfigError(fmt::format("{}: no field \"{}\" (--rename-columns {}={}); {}", where,
                                    before, before, after, known_keys(row)));
    }
    if (row.contains(after)) {
      throw ConfigError(
          fmt::format("{}: the row has a field \"{}\" already (--rename-columns {}={})", where,
                      after, before, after));
    }
    json::value moved = *field;
    row.erase(before);  // of a path, nothing: the whole keeps its part
    row[after] = std::move(moved);
  }
}

DatasetRow read_row(std::string_view line, const RowKeys& keys, std::string_view where) {
  json::value parsed = parse_json(line, where);
  if (!parsed.is_object())
    throw ConfigError(fmt::format("{}: a row should be a JSON object", where));
  json::object& object = parsed.get_object();
  rename_fields(object, keys.renamed, where);

  DatasetRow row;
  row.fields = known_keys(object);
  const bool is_pair = !keys.chosen.empty() && !keys.rejected.empty();
  json::value own_label;  // of a schema
  const KnownSchema* schema = schema_of(object, keys, where);
  if (schema != nullptr) {
    const RowUse use = is_pair                    ? RowUse::kPreferences
                       : !keys.completion.empty() ? RowUse::kSupervised
                                                  : RowUse::kPrompts;
    row.schema = fmt::format("{}: {}", schema->title, schema->says);
    schema->apply(object, keys, use, own_label);
  }
  // A pair of whole conversations needs no field for its prompt.
  if (!is_pair || find_field(object, keys.input) != nullptr)
    row.prompt = required(object, keys.input, "--input-key", where);
  // Rows of environments name a task by its number.
  if (is_whole_number(row.prompt)) row.prompt = json::string(json_text(row.prompt));
  if (!row.prompt.is_null() || !is_pair) {
    if (!row.prompt.is_string() && !is_list_of_objects(row.prompt))
      refuse_messages(row.prompt, keys.input, "--input-key", where);
  }
  if (!keys.label.empty())
    row.label = required(object, keys.label, "--label-key", where);
  else if (keys.takes_labels)
    row.label = std::move(own_label);
  if (const json::value* metadata =
          keys.metadata.empty() ? nullptr : find_field(object, keys.metadata);
      metadata != nullptr && !metadata->is_null()) {
    if (!metadata->is_object() || big_integer_digits(*metadata) != nullptr) {
      throw ConfigError(fmt::format("{}: field \"{}\" (--metadata-key) should be an object", where,
                                    keys.metadata));
    }
    row.metadata = metadata->get_object();
    row.has_metadata_field = true;
  }
  if (is_pair) {
    row.metadata[keys.chosen] = response_of(object, keys.chosen, "--chosen-key", where);
    row.metadata[keys.rejected] = response_of(object, keys.rejected, "--rejected-key", where);
    split_pair(row, object, keys, where);
  }
  if (!keys.completion.empty() && find_field(object, keys.completion) != nullptr) {
    const json::value& completion = response_of(object, keys.completion, "--completion-key", where);
    const json::array* before = row.prompt.if_array();
    const bool is_answer =
        completion.is_string() || role_in(completion.get_array(), 0) == "assistant";
    if (before != nullptr && is_answer && role_in(*before, before->size() - 1) == "assistant") {
      throw ConfigError(fmt::format(
          "{}: the conversation \"{}\" (--input-key) ends with an answer, and \"{}\" would be "
          "another; name the field that follows it with --completion-key",
          where, keys.input, keys.completion));
    }
    row.metadata[keys.completion] = completion;
  }
  if (const json::value* tools = keys.tools.empty() ? nullptr : find_field(object, keys.tools);
      tools != nullptr) {
    row.has_tools_field = true;
    row.tools = read_tools(*tools, keys, where);
    if (!row.tools.empty()) row.metadata["tools"] = row.tools;
  }
  return row;
}

std::string render_row(const DatasetRow& row, const RenderFn& render) {
  const json::string* text = row.prompt.if_string();
  if (!render) return text != nullptr ? std::string(*text) : json_text(row.prompt);
  return render(messages_of(row), row.tools);
}

json::array messages_of(const DatasetRow& row) {
  if (const json::array* messages = row.prompt.if_array()) return *messages;
  return json::array{json::object{{"role", "user"}, {"content", row.prompt}}};
}

std::string pack_row(const DatasetRow& row) {
  return fmt::format("[{},{},{}]", json_text(row.prompt), json_text(row.label),
                     json_text(row.metadata));
}

DatasetRow unpack_row(std::string_view packed) {
  json::array parts = parse_json(packed, "a stored row").get_array();
  DatasetRow row;
  row.prompt = std::move(parts.at(0));
  row.label = std::move(parts.at(1));
  row.metadata = std::move(parts.at(2).get_object());
  if (const json::value* tools = row.metadata.if_contains("tools");
      tools != nullptr && tools->is_array()) {
    row.tools = tools->get_array();
  }
  return row;
}

}  // namespace slime::buffer
