// Bytes as the frames between a RemoteEngine and its EngineServer: either they are refused or they
// mean what their own bytes say.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "engine/remote/frames.h"
#include "net/frame_channel.h"

using namespace slime::engine;

/// The first byte chooses.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view frame(reinterpret_cast<const char*>(data) + 1, size - 1);
  const auto means = [frame](const auto& read) {
    if (to_frame(read) != frame) std::abort();
  };
  try {
    switch (data[0] % 8) {
      case 0:
        means(remote_request_from(frame));
        break;
      case 1:
        means(remote_updates_from(frame));
        break;
      case 2:
        means(weight_piece_from(frame));
        break;
      case 3:
        means(control_call_from(frame));
        break;
      case 4:
        means(control_answer_from(frame));
        break;
      case 6:
        means(delta_piece_from(frame));
        break;
      case 5:
        if (activity_frame(activity_from(frame)) != frame) std::abort();
        break;
      default:
        if (number_frame(number_from(frame)) != frame) std::abort();
    }
  } catch (const slime::net::FrameError&) {
  }
  return 0;
}
