// Precompiled for modules with tensors. Sources still include what they use.
#include "pch.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>
