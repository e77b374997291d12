#pragma once

/// A request that is answered at once with an HTTP status and a sentence.

#include <stdexcept>
#include <string>

#include "core/error.h"

namespace slime::tinker {

class Refusal : public std::runtime_error {
 public:
  Refusal(int status, const std::string& message) : std::runtime_error(message), status_(status) {}
  int status() const { return status_; }

 private:
  int status_;
};

/// Result of `body`, whose ConfigError becomes a refusal with this status.
template <typename Body>
auto or_refuse(int status, const Body& body) {
  try {
    return body();
  } catch (const ConfigError& error) {
    throw Refusal(status, error.what());
  }
}

}  // namespace slime::tinker
