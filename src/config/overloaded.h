#pragma once

/// One visitor of a variant, from a lambda for each of its forms.

namespace slime::config {

template <typename... Forms>
struct Overloaded : Forms... {
  using Forms::operator()...;
};

}  // namespace slime::config
