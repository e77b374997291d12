#pragma once

// See ../README.md.

#include <chrono>
#include <memory>

namespace gloo {

namespace transport {
class UnboundBuffer;
}

class Context {
 public:
  void setTimeout(std::chrono::milliseconds timeout);
};

}  // namespace gloo
