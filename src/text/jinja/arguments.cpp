#include "text/jinja/arguments.h"

#include <fmt/format.h>

#include <algorithm>

#include "text/jinja/budget.h"
#include "text/jinja/operators.h"
#include "text/jinja/print.h"

namespace slime::text::jinja {

BoundArguments::BoundArguments(std::string_view function, Arguments arguments,
                               std::initializer_list<std::string_view> parameters)
    : function_(function), parameters_(parameters), values_(parameters.size()) {
  if (arguments.positional.size() > parameters_.size()) {
    fail_type(fmt::format("{}() takes at most {} arguments ({} given)", function_,
                          parameters_.size(), arguments.positional.size()));
  }
  for (std::size_t i = 0; i < arguments.positional.size(); ++i)
    values_[i] = std::move(arguments.positional[i]);
  for (auto& [name, value] : arguments.named) {
    const auto found = std::find(parameters_.begin(), parameters_.end(), name);
    if (found == parameters_.end()) {
      fail_type(
          fmt::format("{}() got an unexpected keyword argument {}", function_, repr_of_text(name)));
    }
    auto& slot = values_[static_cast<std::size_t>(found - parameters_.begin())];
    if (slot)
      fail_type(
          fmt::format("{}() got multiple values for argument {}", function_, repr_of_text(name)));
    slot = std::move(value);
  }
}

const Value& BoundArguments::require(std::size_t index) const {
  if (!values_[index]) {
    fail_type(fmt::format("{}() missing 1 required positional argument: '{}'", function_,
                          parameters_[index]));
  }
  return *values_[index];
}

bool BoundArguments::flag(std::size_t index, bool if_absent) const {
  return values_[index] ? values_[index]->truthy() : if_absent;
}

int64_t BoundArguments::index(std::size_t index, int64_t if_absent) const {
  if (!values_[index] || values_[index]->is_none()) return if_absent;
  if (values_[index]->is_undefined()) fail_undefined(values_[index]->undefined_reason());
  const auto integer = values_[index]->if_integer();
  if (!integer)
    fail_type(fmt::format("'{}' object cannot be interpreted as an integer",
                          values_[index]->type_name()));
  return to_index(*integer);
}

std::optional<std::string> BoundArguments::text(std::size_t index) const {
  if (!values_[index] || values_[index]->is_none()) return std::nullopt;
  return to_str(*values_[index]);
}

}  // namespace slime::text::jinja
