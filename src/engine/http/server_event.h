#pragma once

/// One server-sent event of a protocol.

#include <string>
#include <utility>
#include <vector>

namespace slime::engine {

struct ServerEvent {
  std::string name;  // empty where the protocol names none
  std::string data;  // JSON, one line
};

inline std::vector<ServerEvent> unnamed_events(std::vector<std::string> data) {
  std::vector<ServerEvent> events;
  for (std::string& each : data) events.push_back({"", std::move(each)});
  return events;
}

}  // namespace slime::engine
