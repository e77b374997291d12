#pragma once

/// Fingerprint of the data a run has read: tells whether a resumed run finds the same rows in the
/// same order.

#include <cstdint>
#include <string_view>

#include "core/crc32c.h"

namespace slime::buffer {

struct DataFingerprint {
  int64_t num_rows = 0;
  uint32_t checksum = 0;  // CRC-32C over the rows' texts, each with its end of line

  void add(std::string_view row) {
    ++num_rows;
    checksum = crc32c("\n", crc32c(row, checksum));
  }
  bool operator==(const DataFingerprint&) const = default;
};

}  // namespace slime::buffer
