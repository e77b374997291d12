#pragma once

/// Arguments of Megatron-LM's parser that are no rows of the flag table: no script of the original has them, but
/// its parser takes them, and so may a script of somebody's own.

#include <optional>
#include <string>
#include <string_view>

namespace slime::config {

struct MegatronArgument {
  std::string_view name;  // "--hysteresis"
  int takes_values = 0;   // as FlagRow::takes_values
  /// Without it something else would be trained: `why` says what to use. Otherwise it has no effect, and
  /// `why` says the reason.
  bool is_refused = false;
  std::string_view why;
};

/// Of "--hysteresis"; also "--override-opt_param-scheduler".
std::optional<MegatronArgument> megatron_argument(std::string_view flag);
/// The one that it is a misspelling of.
std::optional<std::string> nearest_megatron_argument(std::string_view flag);

}  // namespace slime::config
