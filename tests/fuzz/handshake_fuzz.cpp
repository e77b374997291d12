// Bytes as what a stranger sends to a listening end of a run, in pieces of any length, and as what a rank
// claims: nobody is let in who has not the secret, however the bytes are cut, and no more is kept of them
// than a claim may have.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "comm/rank_meeting.h"
#include "net/handshake.h"

using namespace slime;

/// The first byte is the length of the pieces.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  std::string_view rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (const auto claim = comm::rank_claim_from(rest)) {
    if (comm::rank_claim_from(comm::to_text(*claim)) != claim) std::abort();
  }
  const std::string secret(64, '7');
  net::ListeningSide side(secret);
  const std::size_t piece = std::max<std::size_t>(1, data[0]);
  while (!rest.empty() && side.num_wanted() > 0) {
    if (side.num_wanted() > 16 + 32 + net::kClaimLimit) std::abort();
    const std::string_view bytes = rest.substr(0, std::min(piece, side.num_wanted()));
    side.take(bytes);
    rest.remove_prefix(bytes.size());
  }
  if (side.state() == net::ListeningSide::State::kProven) std::abort();
  return 0;
}
