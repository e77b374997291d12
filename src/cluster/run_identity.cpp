#include "cluster/run_identity.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <random>

#include "core/crc32c.h"
#include "core/error.h"

namespace slime::cluster {
namespace {

std::optional<int64_t> epoch_from(std::string_view text) {
  int64_t epoch = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, epoch);
  if (error != std::errc{} || rest != end || epoch < 0) return std::nullopt;
  return epoch;
}

}  // namespace

bool is_same_token(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned difference = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    difference |= static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i]);
  return difference == 0;
}

std::string make_run_token() {
  std::random_device entropy;
  std::string token;
  for (int word = 0; word < 8; ++word) token += fmt::format("{:08x}", entropy());
  return token;
}

std::string own_program() {
  std::ifstream file("/proc/self/exe", std::ios::binary);
  std::string block(std::size_t{1} << 20, '\0');
  uint64_t size = 0;
  uint32_t checksum = 0;
  while (file.read(block.data(), static_cast<std::streamsize>(block.size())), file.gcount() > 0) {
    const auto count = static_cast<std::size_t>(file.gcount());
    checksum = crc32c(std::string_view(block).substr(0, count), checksum);
    size += count;
  }
  return fmt::format("{}-{:08x}", size, checksum);
}

std::vector<std::string> to_environment(const RunIdentity& identity) {
  if (identity.token.empty()) return {};
  return {fmt::format("{}={}", kTokenVariable, identity.token),
          fmt::format("{}={}", kEpochVariable, identity.epoch)};
}

RunIdentity take_identity_from_environment() {
  RunIdentity identity;
  if (const char* token = std::getenv(kTokenVariable)) identity.token = token;
  if (const char* text = std::getenv(kEpochVariable)) {
    const std::optional<int64_t> epoch = epoch_from(text);
    if (!epoch) throw ConfigError(fmt::format("{} is no number", kEpochVariable));
    identity.epoch = *epoch;
  }
  ::unsetenv(kTokenVariable);
  ::unsetenv(kEpochVariable);
  return identity;
}

std::string to_greeting(const RunIdentity& identity) {
  return fmt::format("{} {}", identity.epoch, identity.token);
}

std::string why_refused(const RunIdentity& own, std::string_view greeting) {
  const std::size_t space = greeting.find(' ');
  const std::optional<int64_t> epoch = epoch_from(greeting.substr(0, space));
  if (space == greeting.npos || !epoch) return "it does not begin with the run's token";
  if (!is_same_token(own.token, greeting.substr(space + 1)))
    return "it does not have the token of this run";
  if (*epoch < own.epoch)
    return fmt::format("it is of epoch {}, and the run is in epoch {}", *epoch, own.epoch);
  return "";
}

}  // namespace slime::cluster
