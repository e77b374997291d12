#pragma once

/// Peak rate of a GPU's matrix products, from its data sheet.

#include <optional>
#include <string_view>

namespace slime::kernels {

/// FLOP/s of dense products in 16 bits; nothing for a GPU that is not in the table. `name`: as the driver
/// calls it, "NVIDIA H200".
std::optional<double> peak_flops(std::string_view name);

}  // namespace slime::kernels
