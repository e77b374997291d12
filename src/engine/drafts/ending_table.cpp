#include "engine/drafts/ending_table.h"

#include <utility>

#include "core/error.h"

namespace slime::engine {

void EndingTable::grow() {
  check(old_.empty(), "all slots of a table are moved before it grows again");
  old_ = std::exchange(slots_, std::vector<uint32_t>(slots_.size() * 2));
  moved_ = 0;
}

}  // namespace slime::engine
