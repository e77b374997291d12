#pragma once

/// Frame types between the program and a plug-in host, and the reader of their heads
/// (docs/plugin_protocol.md). Bytes of a host are a stranger's: all of these throw net::FrameError
/// for what is not there.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"

namespace slime::plugin {

inline constexpr int64_t kProtocol = 1;

enum FrameType : uint32_t {
  kConfigure = 1,
  kReady,
  kCalls,
  kAnswers,
  kCancel,
  kAsks,
  kReplies,
  kBeat
};

/// Empty where it is not there.
std::string text_of(const json::object& object, std::string_view name);
const json::array& list_of(const json::object& head, std::string_view name);
const json::object& object_of(const json::value& value);
int64_t id_of(const json::object& object);

/// What a ready host could not resolve, a paragraph for each.
std::vector<std::string> problems_of(const json::object& ready);
/// What it tells the user of functions that it can call.
std::vector<std::string> notes_of(const json::object& ready);

/// Why a host that did not even start is of no use: its last words, and what would work.
std::string start_failure(const std::string& python, const std::string& told,
                          std::string_view log_tail);

}  // namespace slime::plugin
