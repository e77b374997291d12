#pragma once

/// The kinds of a ModelConfig in words, as config.json and messages have them.

#include <string_view>

#include "model/config.h"

namespace slime::model {

std::string_view word_of(QkNorm norm);
/// As config.json writes it: "default", "linear", "longrope".
std::string_view word_of(Rope::Kind kind);
std::string_view word_of(RouterScore score);

}  // namespace slime::model
