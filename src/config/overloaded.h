#pragma once

/// One visitor of a variant, from a lambda for each of its forms.

namespace slime::config {

template <typename... Forms>
struct Overloaded : Forms... {
  using Forms::operator()...;
};
template <typename... Forms>
Overloaded(Forms...) -> Overloaded<Forms...>;

}  // namespace slime::config
