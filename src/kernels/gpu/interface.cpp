#include "kernels/gpu/interface.h"

#include <fmt/format.h>

namespace slime::kernels {

std::string interface_problem(const std::string& library, std::string_view hash_of_library) {
  if (hash_of_library == interface_hash()) return {};
  return fmt::format(
      "{} was built with interface {}, this program with interface {}: they are not of one build. "
      "`SLIME_CUDA=1 ./dev build` makes both",
      library, hash_of_library, interface_hash());
}

}  // namespace slime::kernels
