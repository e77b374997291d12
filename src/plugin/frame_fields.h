#pragma once

/// Members of the heads of frames. Each throws net::FrameError for what should be there and is not.

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "core/json.h"
#include "net/frame_channel.h"

namespace slime::plugin {

/// Empty when there is no such text: it is only shown.
inline std::string text_of(const json::object& object, std::string_view name) {
  const json::value* value = object.if_contains(name);
  return value != nullptr && value->is_string() ? std::string(value->get_string()) : "";
}

inline const json::array& list_of(const json::object& head, std::string_view name) {
  const json::value* value = head.if_contains(name);
  if (value == nullptr || !value->is_array())
    throw net::FrameError(fmt::format("a frame without its {}", name));
  return value->get_array();
}

inline const json::object& object_of(const json::value& value) {
  if (!value.is_object()) throw net::FrameError("a frame with something that is no object");
  return value.get_object();
}

inline int64_t id_of(const json::object& object) {
  const json::value* id = object.if_contains("id");
  if (id == nullptr || !id->is_int64()) throw net::FrameError("a frame with something without id");
  return id->get_int64();
}

}  // namespace slime::plugin
