#include "roles/kept_engine.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <optional>

#include "cluster/local_socket.h"
#include "core/clock.h"
#include "core/error.h"
#include "net/frame_channel.h"
#include "roles/engine_role.h"
#include "roles/session_frames.h"

namespace slime::roles {
namespace {

constexpr std::chrono::milliseconds kKeptAnswerLimit{10'000};

void tell(const std::string& line) {
  fmt::print(stderr, "{}\n", line);
  std::fflush(stderr);
}

/// One class because what a trainer may ask for depends on what those before it have left.
class KeptEngine final {
 public:
  explicit KeptEngine(const cluster::RunIdentity& identity) : identity_(identity) {}

  /// One connection; false: the process is to end.
  bool serve(int descriptor) {
    net::FrameChannel channel(descriptor);
    const std::optional<net::Frame> asked = channel.receive_alone();
    if (!asked) return true;
    switch (static_cast<SessionFrame>(asked->type)) {
      case SessionFrame::kEnd:
        say(channel, SessionFrame::kEnds, "");
        return false;
      case SessionFrame::kStart:
        if (!role_ && !begin(channel, asked->payload)) return false;
        break;
      case SessionFrame::kAttach:
        if (role_) break;
        say(channel, SessionFrame::kRefused, "it has not become an engine yet");
        return true;
      default:
        throw net::FrameError(fmt::format("a frame of type {} came", asked->type));
    }
    say(channel, SessionFrame::kReady, to_text(state()));
    tell(fmt::format("a trainer has come; the weights are of version {}", state_.version));
    const int64_t requests = role_->serve(channel.release());
    tell(fmt::format("the trainer is gone; its requests were {}", requests));
    return true;
  }

 private:
  /// False: it cannot become one, which the trainer is told.
  bool begin(net::FrameChannel& channel, const std::string& frame) {
    try {
      const EngineStart start = engine_start_from(frame);
      at::set_num_threads(start.num_threads);
      role_.emplace(start, identity_, clock_, [](const std::string& why) {
        tell(why);
        std::_Exit(EXIT_FAILURE);
      });
      return true;
    } catch (const ConfigError& error) {
      tell(error.what());
      say(channel, SessionFrame::kRefused, error.what());
      return false;
    }
  }

  const KeptEngineState& state() {
    state_ = role_->state();
    state_.process = ::getpid();
    return state_;
  }

  static void say(net::FrameChannel& channel, SessionFrame type, const std::string& payload) {
    channel.send(static_cast<uint32_t>(type), payload, kKeptAnswerLimit);
  }

  const cluster::RunIdentity identity_;
  const SystemClock clock_;
  std::optional<EngineRole> role_;
  KeptEngineState state_;  // as the last trainer was told
};

}  // namespace

int run_kept_engine(const std::filesystem::path& socket, std::chrono::milliseconds patience,
                    const cluster::RunIdentity& identity) {
  cluster::LocalListener listener(socket);
  KeptEngine engine(identity);
  for (;;) {
    const std::optional<int> descriptor = listener.accept_within(patience);
    if (!descriptor) {
      tell(fmt::format("no trainer has come for {:g} minutes",
                       std::chrono::duration<double>(patience).count() / 60));
      return EXIT_SUCCESS;
    }
    try {
      if (!engine.serve(*descriptor)) return EXIT_SUCCESS;
    } catch (const net::FrameError& error) {  // of this trainer; the next one may do better
      tell(error.what());
    }
  }
}

}  // namespace slime::roles
