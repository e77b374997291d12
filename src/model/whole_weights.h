#pragma once

/// The buffer of a whole model's weights, as a rank that holds slices of them sees it: bytes of it go
/// where the rank has them, and those of others' slices nowhere.
///
///   whole   q_proj 4 x 3    rank 1 of 2 has rows 2 and 3: bytes [24, 48) of float32
///           o_proj 3 x 4    and columns 2 and 3: of each row the last eight bytes
///
/// The whole buffer is that of a network of the same configuration on one rank (NamedWeight::whole_offset).
/// Whoever holds everything is the rank that takes all bytes, and its buffer is the whole one.

#include <cstdint>
#include <string_view>

#include "model/weights.h"

namespace slime::model {

/// Of the whole buffer, in the precision of `own`.
int64_t whole_bytes(const Weights& own);

/// Bytes [offset, offset + bytes.size()) of the whole buffer, into the rank's. They need not begin or
/// end where numbers do; beyond the whole buffer there are none.
void write_whole_(Weights& own, int64_t offset, std::string_view bytes);

}  // namespace slime::model
