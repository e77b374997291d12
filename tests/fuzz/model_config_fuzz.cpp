/// Any JSON object as config.json: either it describes a network or a ConfigError says why not.

#include <string_view>

#include "core/error.h"
#include "model/config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  try {
    const auto value = slime::parse_json({reinterpret_cast<const char*>(bytes), size}, "fuzz");
    if (value.is_object()) slime::model::parse_model_config(value.as_object(), "fuzz");
  } catch (const slime::ConfigError&) {  // the expected answer to most inputs
  }
  return 0;
}
