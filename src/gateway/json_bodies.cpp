#include "gateway/json_bodies.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <string_view>

#include "core/error.h"

namespace slime::gateway {
namespace {

const json::value& key_of(const json::value& entry) {
  const json::object* object = entry.if_object();
  for (const char* name : {"id", "name"}) {
    const json::value* key = object == nullptr ? nullptr : object->if_contains(name);
    if (key != nullptr) return *key;
  }
  return entry;
}

}  // namespace

std::string url_in_body(const std::string& body) {
  const json::value parsed = parse_json(body, "the body");
  const json::object* object = parsed.if_object();
  const json::value* url = object == nullptr ? nullptr : object->if_contains("url");
  if (url == nullptr || !url->is_string())
    throw ConfigError(R"(the body needs "url": {"url": "http://HOST:PORT"})");
  const json::value* type = object->if_contains("worker_type");
  const auto is_text = [](const json::value* value, std::string_view text) {
    return value == nullptr || value->is_null() ||
           (value->is_string() && value->get_string() == text);
  };
  if (!is_text(type, "regular"))
    throw ConfigError("worker_type: only \"regular\" workers, which do prefill and decode");
  const json::value* key = object->if_contains("api_key");
  if (!is_text(key, ""))
    throw ConfigError("api_key: workers get the Authorization header of each request");
  return std::string(url->get_string());
}

std::string named_session(std::string body) {
  const auto parsed = try_parse_json(body.empty() ? "{}" : body);
  const json::object* fields = parsed ? parsed->if_object() : nullptr;
  if (fields == nullptr) return body;
  const json::value* name = fields->if_contains("name");
  if (name != nullptr && !name->is_null()) return body;
  static thread_local std::mt19937_64 random{std::random_device{}()};
  json::object named = *fields;
  named["name"] = fmt::format("{:016x}{:016x}", random(), random());
  return json_text(named);
}

std::optional<json::object> object_with_list(const std::string& body, const std::string& member) {
  auto parsed = try_parse_json(body);
  json::object* object = parsed ? parsed->if_object() : nullptr;
  const json::value* list = object == nullptr ? nullptr : object->if_contains(member);
  if (list == nullptr || !list->is_array()) return std::nullopt;
  return std::move(*object);
}

std::optional<std::vector<std::string>> models_in(const std::string& body) {
  const auto object = object_with_list(body, "data");
  if (!object) return std::nullopt;
  std::vector<std::string> models;
  for (const json::value& card : object->at("data").get_array()) {
    const json::object* fields = card.if_object();
    const json::value* id = fields == nullptr ? nullptr : fields->if_contains("id");
    if (id != nullptr && id->is_string()) models.emplace_back(id->get_string());
  }
  return models;
}

void MergedList::add(const json::array& entries) {
  for (const json::value& entry : entries) {
    const bool is_known = std::ranges::any_of(
        all_, [&](const json::value& known) { return key_of(known) == key_of(entry); });
    if (!is_known) all_.push_back(entry);
  }
}

}  // namespace slime::gateway
