#pragma once

/// The functions of the user's that a run's flags name, and not those that are built in under the
/// original's names (docs/plugins.md).

#include <string>
#include <string_view>
#include <vector>

#include "config/run_config.h"

namespace slime::config {

struct UsersFunction {
  std::string_view flag;       // "--custom-rm-path"
  std::string_view hook;       // "reward": what python/slime/host/hooks.py calls it
  std::string path;            // module.name, file.py:name, file.py
  bool is_called = true;       // this run has a use for it
  bool is_of_samples = false;  // generation waits for what it says of a sample or a group
  bool keeps_state = false;    // from call to call: there is one of it, in one host
};

/// Those that the run calls.
std::vector<UsersFunction> users_functions(const RunConfig& config);
/// Those that it does not: nothing is generated, evaluated or trained.
std::vector<UsersFunction> idle_functions(const RunConfig& config);

/// --dynamic-sampling-filter-path names a function of the user's.
bool has_users_filter(const RunConfig& config);

}  // namespace slime::config
