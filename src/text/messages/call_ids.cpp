#include "text/messages/call_ids.h"

#include <fmt/format.h>

#include <string>

#include "core/random.h"

namespace slime::text {
namespace {

std::string random_letters(uint64_t seed, int index) {
  constexpr std::string_view kLetters =
      "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  std::string letters;
  for (uint64_t i = 0; i < 9; ++i) {
    const double draw = uniform(seed, static_cast<uint64_t>(index), i);
    letters += kLetters[static_cast<std::size_t>(draw * static_cast<double>(kLetters.size()))];
  }
  return letters;
}

}  // namespace

MessageWriter::MakeId make_call_ids(CallIds ids, uint64_t seed, int num_earlier_calls) {
  return [=](int index, std::string_view name, std::string_view written) -> std::string {
    if (ids != CallIds::kOpenAi && !written.empty()) return std::string(written);
    if (ids == CallIds::kMistral) return random_letters(seed, index);
    if (ids == CallIds::kKimi)
      return fmt::format("functions.{}:{}", name, num_earlier_calls + index);
    const auto words = philox({static_cast<uint32_t>(index), 0, 0, 0},
                              {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
    return fmt::format("call_{:08x}{:08x}{:08x}", words[0], words[1], words[2]);
  };
}

}  // namespace slime::text
