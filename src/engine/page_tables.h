#pragma once

/// A request's page tables by group of layers (engine/cache_groups.h).

#include <cstddef>
#include <vector>

#include "engine/request.h"

namespace slime::engine {

inline const std::vector<PageId>& table_of(const Request& request, std::size_t group) {
  return group == 0 ? request.pages : request.window_pages[group - 1];
}

}  // namespace slime::engine
