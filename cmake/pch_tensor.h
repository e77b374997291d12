// Precompiled for files that handle tensors without computing on them. Sources still include what they use.
#include "pch_plain.h"

#include <ATen/core/Tensor.h>
