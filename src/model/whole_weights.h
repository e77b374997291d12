#pragma once

/// The buffers of a whole model's weights, as a rank that holds slices of them sees them: bytes of them go
/// where the rank has them, and those of others' slices nowhere.
///
///   whole   q_proj 4 x 3    rank 1 of 2 has rows 2 and 3: bytes [24, 48) of float32
///           o_proj 3 x 4    and columns 2 and 3: of each row the last eight bytes
///
/// The whole buffers are those of a network of the same configuration on one rank, one behind another: plain numbers,
/// codes, factors (WeightBuffers::numbers, NamedWeight::whole_offset). Whoever holds everything is the rank that takes
/// all bytes, and its buffers are the whole ones.

#include <cstdint>
#include <string_view>

#include "model/weights.h"

namespace slime::model {

/// Of the whole buffers, in the precision and the format of `own`.
int64_t whole_bytes(const Weights& own);

/// Bytes [offset, offset + bytes.size()) of the whole buffers, into the rank's. They need not begin or
/// end where numbers do; beyond the whole buffers there are none.
void write_whole_(Weights& own, int64_t offset, std::string_view bytes);

}  // namespace slime::model
