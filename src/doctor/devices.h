#pragma once

/// Checks of the GPUs as a run would find them: driver, visibility, the library of kernels, its architectures.

#include <filesystem>

#include "doctor/check.h"
#include "kernels/gpu/rocm.h"

namespace slime::doctor {

/// Opens the first visible NVIDIA GPU where this program has kernels for it, which is what a run does first.
Checks check_devices(const std::filesystem::path& proc = "/proc");

/// AMD's GPUs: what they are, ROCm's version, and a line for each missing part. Empty where there is neither AMD's driver
/// nor its runtime. Nothing is a problem: runs take these GPUs with --device hip alone.
Checks check_amd_devices(const kernels::Rocm& rocm);

}  // namespace slime::doctor
