#pragma once

/// Models, runs and adapters in a folder of them, as words that commands take for a model.

#include <filesystem>
#include <string>

namespace slime::cli {

/// Sentence that names the models and runs up to three folders below one that is no model itself: "open one of
/// runs/a, runs/b"; adapters without their run name the command that takes them. Empty: there is nothing.
std::string models_below(const std::filesystem::path& folder);

/// Sentence that names the models and runs beside a path that is not there: "; runs has a, b". Empty: there is none.
std::string models_beside(const std::filesystem::path& path);

}  // namespace slime::cli
