#pragma once

/// Expected<T, E>: a result, or the reason why there is none, for callers that branch on it.

#include <string>
#include <tl/expected.hpp>

namespace slime {

/// What went wrong, for a person.
struct Error {
  std::string message;
};

template <typename T, typename E = Error>
using Expected = tl::expected<T, E>;

inline tl::unexpected<Error> failure(std::string message) {
  return tl::make_unexpected(Error{std::move(message)});
}

}  // namespace slime
