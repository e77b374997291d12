#pragma once

/// One server-sent event of a protocol that names its events.

#include <string>

namespace slime::engine {

struct ServerEvent {
  std::string name;
  std::string data;  // JSON, one line
};

}  // namespace slime::engine
