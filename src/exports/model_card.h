#pragma once

/// Card of an exported model, README.md as Hugging Face's hub shows it: what it was trained from, on what, how, and
/// how that went. Facts of the run's files alone; no path of this machine, no secret.

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "core/json.h"

namespace slime::exports {

struct CardOf {
  std::filesystem::path run;  // the run directory; empty: the model is of no run
  int64_t step = -1;          // of the checkpoint
  std::string title;
  std::string precision;  // "bf16", "fp8"; empty: as it was trained
};

std::string model_card(const CardOf& of);

/// A path as the card says it: its last part, or a model's name where it lies in the hub's cache. Other texts stay, but
/// addresses of servers, which say nothing to others.
std::string without_place(std::string_view word);

}  // namespace slime::exports
