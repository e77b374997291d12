// Precompiled for files that compute with ATen. Sources still include what they use. What it makes the compiler
// instantiate is made again in every file, used or not (three seconds): autograd's Function would add two.
#include "pch_plain.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
