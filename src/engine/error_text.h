#pragma once

/// Text of an exception for people: LibTorch's own without their stack.

#include <c10/util/Exception.h>

#include <exception>
#include <string>

namespace slime::engine {

inline std::string text_of(const std::exception& error) {
  const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  return torch_error != nullptr ? torch_error->what_without_backtrace() : error.what();
}

}  // namespace slime::engine
