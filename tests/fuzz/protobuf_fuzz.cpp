// Bytes as a message of Protocol Buffers, with messages inside it: its fields or a ConfigError, nothing else.

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "tinker/protobuf.h"

namespace {

using namespace slime;
using namespace slime::tinker;

constexpr int kDeepest = 4;

void read(std::string_view bytes, int depth) {
  ProtoReader reader(bytes, "body");
  while (const auto field = reader.next()) {
    const auto attempt = [](auto&& access) {
      try {
        access();
      } catch (const ConfigError&) {
      }
    };
    std::vector<int64_t> numbers;
    attempt([&] { field->add_integers(numbers); });
    attempt([&] { (void)field->number64(); });
    attempt([&] { (void)field->text(16); });
    if (depth < kDeepest) attempt([&] { read(field->bytes(), depth + 1); });
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    read({reinterpret_cast<const char*>(data), size}, 0);
  } catch (const ConfigError&) {
  }
  return 0;
}
