#pragma once

/// Repetitive text: whether the end of a long text says little new, as the original asks of responses
/// (rollout/repetition_frac).

#include <cstddef>
#include <string_view>

namespace slime {

/// About as many bytes as zlib's best level makes of `text`, in UTF-8 or not: matches of at least three
/// bytes in the 32 KiB before, and codes as short as the frequencies allow. Within a tenth of zlib's
/// where that is half a kilobyte or more.
std::size_t compressed_size(std::string_view text);

/// Longer than 10,000 characters, the last 10,000 of which become more than ten times smaller.
bool is_repetitive(std::string_view text);

}  // namespace slime
