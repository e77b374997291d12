#pragma once

/// Counter-based random numbers: Philox-4x32-10 (Salmon et al., "Parallel random numbers: as easy
/// as 1, 2, 3", SC 2011).
///
/// A draw is a pure function of (seed, stream, counter): the sampled token of sample s at position
/// p is the same whatever else is in the batch, on which thread, after which restart.

#include <array>
#include <cstdint>

namespace slime {

/// Ten rounds of Philox-4x32.
std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

/// Uniform in (0, 1), 53 bits: never 0, never 1.
double uniform(uint64_t seed, uint64_t stream, uint64_t counter);

/// Standard normal (Box-Muller on one philox block).
double normal(uint64_t seed, uint64_t stream, uint64_t counter);

}  // namespace slime
