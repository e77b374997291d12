#pragma once

/// Another system's name of a setting, and what it is called here; answers that several names share.

#include <string_view>

namespace slime::config {

struct Foreign {
  std::string_view name;  // without dashes in front, with - for _
  std::string_view ours;
};

inline constexpr std::string_view kAdapters = "--lora-rank and --target-modules";
inline constexpr std::string_view kRanks =
    "--tensor-model-parallel-size and its kin; optimizer and gradients need no setting";
inline constexpr std::string_view kOwnEngine =
    "nothing: generation is built in (--sglang-... flags)";

}  // namespace slime::config
