#pragma once

/// Memory that ran out, whoever noticed: LibTorch's allocators, the C++ library, or one of NVIDIA's
/// libraries, which all say so in their own way.

#include <exception>
#include <stdexcept>

namespace slime {

/// The engine, which answers requests with values, hands the news on as this.
class OutOfMemory : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Whether memory that was not there is what `error` reports. Libraries tell it by text alone.
bool is_out_of_memory(const std::exception& error);

}  // namespace slime
