#pragma once

/// Checks of a machine: one line each, with what to do where something is missing.

#include <string>
#include <vector>

#include "core/json.h"

namespace slime::doctor {

enum class State {
  kOk,
  kNote,     // works, and somebody may want to know
  kProblem,  // what it says will not work
};

struct Check {
  std::string area;  // "memory"
  State state = State::kOk;
  std::string what;       // "14.2 of 15.6 GiB are free"
  std::string cure = {};  // what to do; empty: nothing
};

using Checks = std::vector<Check>;

/// "ok", "note", "problem".
std::string_view word_of(State state);
bool has_problem(const Checks& checks);
json::array to_json(const Checks& checks);

/// "1.5 GiB".
std::string in_bytes(double bytes);

}  // namespace slime::doctor
