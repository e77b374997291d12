// Bytes of a peer to frames: split anywhere they are the same frames, or the same refusal.

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "net/frame_channel.h"

namespace {

/// Everything the peer's bytes say, as text.
std::string frames_of(std::string_view bytes, std::size_t split) {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()) != 0) std::abort();
  slime::net::FrameChannel channel(ends[0], /*limit_bytes=*/1 << 16);
  std::string all;
  const auto drain = [&] {
    while (const auto frame = channel.next())
      all += std::to_string(frame->type) + ":" + frame->payload + ";";
  };
  try {
    for (const std::string_view part : {bytes.substr(0, split), bytes.substr(split)}) {
      if (!part.empty() && ::write(ends[1], part.data(), part.size()) < 0) std::abort();
      channel.read_available();
      drain();
    }
  } catch (const slime::net::FrameError&) {
    all += "refused";
  }
  ::close(ends[1]);
  return all;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  if (frames_of(bytes, size) != frames_of(bytes, size / 3)) std::abort();
  return 0;
}
