// Bytes as a YAML file of settings: --config, --custom-config-path, --megatron-config-path or
// --eval-config. A configuration or a ConfigError, nothing else.

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "config/eval_config.h"
#include "config/parse_flags.h"
#include "config/validate.h"
#include "core/error.h"

using namespace slime;

/// The first byte chooses.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const int descriptor = ::memfd_create("fuzz", 0);
  if (::write(descriptor, data + 1, size - 1) == static_cast<ssize_t>(size - 1)) {
    constexpr const char* kFlags[] = {"--config", "--custom-config-path", "--megatron-config-path",
                                      "--eval-config"};
    const char* flag = kFlags[data[0] % std::size(kFlags)];
    try {
      config::ParsedFlags flags = config::parse_flags(
          std::vector<std::string>{flag, "/proc/self/fd/" + std::to_string(descriptor)});
      if (!flags.config.eval_config.empty()) config::eval_sets_of(flags.config);
      config::complete_and_validate(flags);
    } catch (const ConfigError&) {  // the expected answer to most inputs
    }
  }
  ::close(descriptor);
  return 0;
}
