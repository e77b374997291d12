#pragma once

/// Keys and passwords that a user gives to a run. They are never written anywhere: not into
/// run.json, the report, what W&B is told, messages, or the arguments that worker processes get.

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"

namespace slime::config {

/// What is written in the place of a secret.
inline constexpr std::string_view kHidden = "***";

/// Whether the value of this flag is a secret: --wandb-key, and flags that are no row of our table
/// (those of plug-ins) whose name ends in key, token, secret or password. With or without dashes.
bool is_secret_flag(std::string_view name);

/// `text` with the secrets of each URL hidden: user name and password ("http://***@host/"), and
/// parameters with the name of a secret flag ("http://host/judge?token=***").
std::string without_passwords(std::string_view text);

/// Flags by name, with the values that are secret hidden.
json::object without_secrets(const json::object& flags);
/// The same of a command line.
std::vector<std::string> without_secrets(std::span<const std::string> arguments);

/// Overwrites the secrets among a process's own arguments, and URLs that have one, which every user
/// of the machine can read. The caller has copied them.
void hide_secrets(std::span<char* const> arguments);

}  // namespace slime::config
