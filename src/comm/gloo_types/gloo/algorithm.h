#pragma once

/// Types of Gloo, of which LibTorch ships the library and no headers: those that
/// torch/csrc/distributed/c10d/ProcessGroupGloo.hpp names, as far as it needs them. Nothing of this program
/// makes or takes apart one of them, so their layout does not matter.
