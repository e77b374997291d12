#pragma once

/// The hub's list of a repository's files: JSON of a server.

#include <cstddef>
#include <string_view>

#include "hub/cache.h"

namespace slime::hub {

/// Files that a list may have.
inline constexpr std::size_t kMostListed = 200'000;

/// The files of {"sha": COMMIT, "siblings": [{"rfilename": PATH, "size": N, "blobId" or "lfs": ...}]}. Other
/// fields are passed over; a size or a checksum that is none counts as not known. Throws std::exception for
/// another form, for a path that leaves its folder, and beyond kMostListed.
Listing parse_file_list(std::string_view text, std::string_view where);

}  // namespace slime::hub
