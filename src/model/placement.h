#pragma once

/// Device and precision of a network, from the words that users type.

#include <string>

#include "model/weights.h"

namespace slime::model {

/// `device`: "cpu", or "cuda" or "hip", the first visible GPU, which is opened. Throws ConfigError with what
/// is missing, and for a `dtype` that the device does not compute in.
Precision precision_on(const std::string& device, const std::string& dtype);

}  // namespace slime::model
