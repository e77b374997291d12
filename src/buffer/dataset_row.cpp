#include "buffer/dataset_row.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
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

DatasetRow read_row(std::string_view line, const RowKeys& keys, std::string_view where) {
  json::value parsed = parse_json(line, where);
  if (!parsed.is_object())
    throw ConfigError(fmt::format("{}: a row should be a JSON object", where));
  const json::object& object = parsed.get_object();

  DatasetRow row;
  row.prompt = required(object, keys.input, "--input-key", where);
  // Rows of environments name a task by its number.
  if (row.prompt.is_int64()) row.prompt = json::string(std::to_string(row.prompt.get_int64()));
  if (!row.prompt.is_string() && !is_list_of_objects(row.prompt)) {
    throw ConfigError(
        fmt::format("{}: field \"{}\" (--input-key) should be a string or a list of messages",
                    where, keys.input));
  }
  if (!keys.label.empty()) row.label = required(object, keys.label, "--label-key", where);
  if (const json::value* metadata =
          keys.metadata.empty() ? nullptr : find_field(object, keys.metadata);
      metadata != nullptr && !metadata->is_null()) {
    if (!metadata->is_object()) {
      throw ConfigError(fmt::format("{}: field \"{}\" (--metadata-key) should be an object", where,
                                    keys.metadata));
    }
    row.metadata = metadata->get_object();
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
  if (const json::value* tools = keys.tools.empty() ? nullptr : find_field(object, keys.tools);
      tools != nullptr) {
    row.tools = read_tools(*tools, keys, where);
    if (!row.tools.empty()) row.metadata["tools"] = row.tools;
  }
  return row;
}

std::string render_row(const DatasetRow& row, const RenderFn& render) {
  const json::string* text = row.prompt.if_string();
  if (!render) return text != nullptr ? std::string(*text) : json::serialize(row.prompt);
  if (text == nullptr) return render(row.prompt.get_array(), row.tools);
  return render(json::array{json::object{{"role", "user"}, {"content", *text}}}, row.tools);
}

std::string pack_row(const DatasetRow& row) {
  return fmt::format("[{},{},{}]", json::serialize(row.prompt), json::serialize(row.label),
                     json::serialize(row.metadata));
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
