#pragma once

/// The commands of a program as people meet them: the page of `slime` alone, the list of `slime help`, and the one
/// that a mistyped word is meant for.

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "help/manual.h"

namespace slime::help {

struct Verb {
  std::string_view name;
  std::string_view summary;  // one line
  std::string_view section;  // title in the list; empty: a command that only programs start
  bool is_first = false;     // what people begin with
};

std::string front_page(std::span<const Verb> verbs, const Style& style);
std::string list_of_verbs(std::span<const Verb> verbs, const Style& style);

/// The command of a misspelt name, or of a name that other programs have for it ("finetune"). Nothing: none is near.
std::optional<std::string_view> verb_meant_by(std::string_view word, std::span<const Verb> verbs);

}  // namespace slime::help
