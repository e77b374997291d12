#include "buffer/dataset_row.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <vector>

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

const json::value& required(const json::object& row, std::string_view key, std::string_view flag,
                            std::string_view where) {
  const json::value* value = row.if_contains(key);
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

DatasetRow read_row(std::string_view line, const RowKeys& keys, std::string_view where) {
  json::value parsed = parse_json(line, where);
  if (!parsed.is_object())
    throw ConfigError(fmt::format("{}: a row should be a JSON object", where));
  const json::object& object = parsed.get_object();

  DatasetRow row;
  row.fields = known_keys(object);
  row.prompt = required(object, keys.input, "--input-key", where);
  // Rows of environments name a task by its number.
  if (is_whole_number(row.prompt)) row.prompt = json::string(json_text(row.prompt));
  if (!row.prompt.is_string() && !is_list_of_objects(row.prompt)) {
    throw ConfigError(
        fmt::format("{}: field \"{}\" (--input-key) should be a string or a list of messages",
                    where, keys.input));
  }
  if (!keys.label.empty()) row.label = required(object, keys.label, "--label-key", where);
  if (const json::value* metadata =
          keys.metadata.empty() ? nullptr : object.if_contains(keys.metadata);
      metadata != nullptr && !metadata->is_null()) {
    if (!metadata->is_object() || big_integer_digits(*metadata) != nullptr) {
      throw ConfigError(fmt::format("{}: field \"{}\" (--metadata-key) should be an object", where,
                                    keys.metadata));
    }
    row.metadata = metadata->get_object();
    row.has_metadata_field = true;
  }
  for (const auto& [key, flag] :
       {std::pair{&keys.chosen, "--chosen-key"}, std::pair{&keys.rejected, "--rejected-key"}}) {
    if (key->empty()) continue;
    const json::value& response = required(object, *key, flag, where);
    if (!response.is_string() && !is_list_of_objects(response)) {
      throw ConfigError(fmt::format(
          "{}: field \"{}\" ({}) should be a string or a list of messages", where, *key, flag));
    }
    row.metadata[*key] = response;
  }
  if (const json::value* tools = keys.tools.empty() ? nullptr : object.if_contains(keys.tools);
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
  if (text == nullptr) return render(row.prompt.get_array(), row.tools);
  return render(json::array{json::object{{"role", "user"}, {"content", *text}}}, row.tools);
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
