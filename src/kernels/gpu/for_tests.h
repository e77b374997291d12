#pragma once

/// Condition of tests that need a GPU: they say so and pass where there is none.

#include <gtest/gtest.h>

#include <string>

#include "core/error.h"
#include "kernels/gpu/gpu.h"

namespace slime::kernels {

/// Empty when the GPU is open.
inline const std::string& why_no_gpu() {
  static const std::string why = [] {
    try {
      open_gpu();
      return std::string();
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
  }();
  return why;
}

}  // namespace slime::kernels

#define SLIME_NEEDS_GPU() \
  if (!slime::kernels::why_no_gpu().empty()) GTEST_SKIP() << slime::kernels::why_no_gpu()
