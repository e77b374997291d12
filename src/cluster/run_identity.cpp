#include "cluster/run_identity.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <optional>

#include "core/crc32c.h"
#include "core/error.h"
#include "net/secret.h"

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

std::string make_run_token() {
  std::string token;
  for (const char byte : net::random_bytes(32))
    token += fmt::format("{:02x}", static_cast<unsigned char>(byte));
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
  if (char* token = std::getenv(kTokenVariable)) {
    identity.token = token;
    std::fill(token, token + identity.token.size(), '\0');
  }
  if (const char* text = std::getenv(kEpochVariable)) {
    const std::optional<int64_t> epoch = epoch_from(text);
    if (!epoch) throw ConfigError(fmt::format("{} is no number", kEpochVariable));
    identity.epoch = *epoch;
  }
  ::unsetenv(kTokenVariable);
  ::unsetenv(kEpochVariable);
  return identity;
}

std::string to_greeting(const RunIdentity& identity) { return fmt::format("{}", identity.epoch); }

std::string why_refused(const RunIdentity& own, std::string_view greeting) {
  const std::optional<int64_t> epoch = epoch_from(greeting);
  if (!epoch) return "it does not begin with its epoch";
  if (*epoch < own.epoch)
    return fmt::format("it is of epoch {}, and the run is in epoch {}", *epoch, own.epoch);
  return "";
}

}  // namespace slime::cluster
