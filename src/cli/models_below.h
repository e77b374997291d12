#pragma once

/// Models, runs and adapters in a folder of them, as words that commands take for a model.

#include <filesystem>
#include <string>

namespace slime::cli {

/// What can be opened up to three folders below one that is no model itself, for a message: "open one of
/// runs/a, runs/b"; adapters without their run name the command that takes them. Empty: there is nothing.
std::string models_below(const std::filesystem::path& folder);

/// What lies beside a path that is not there: "; runs has a, b". Empty: nothing that could be opened.
std::string models_beside(const std::filesystem::path& path);

}  // namespace slime::cli
