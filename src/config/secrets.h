#pragma once

/// Keys and passwords that a user gives to a run. They are never written anywhere: not into
/// run.json, the report, what W&B is told, messages, or what worker processes get.

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"

namespace slime::config {

/// Whether the value of this flag is a secret: --wandb-key, and flags that are no row of our table
/// (those of plug-ins) whose name ends in key, token, secret or password. With or without dashes.
bool is_secret_flag(std::string_view name);

/// Flags by name, with the values that are secret hidden.
json::object without_secrets(const json::object& flags);

/// Overwrites the secrets among a process's own arguments, and URLs that have one, which every user
/// of the machine can read. The caller has copied them.
void hide_secrets(std::span<char* const> arguments);

}  // namespace slime::config
