#include "engine/ranks/followers.h"

#include <fmt/format.h>

#include "comm/rank_group.h"

namespace slime::engine {
namespace {

constexpr std::chrono::minutes kSendLimit{1};  // a follower reads between two steps

[[noreturn]] void lose(std::size_t index, std::string_view why) {
  throw comm::GroupError(fmt::format("rank {} of the engine {}", index + 1, why));
}

}  // namespace

Followers::Followers(const std::vector<int>& descriptors) {
  for (const int descriptor : descriptors)
    channels_.push_back(std::make_unique<net::FrameChannel>(descriptor));
}

void Followers::tell(RankOrder order, std::string_view payload) {
  for (std::size_t i = 0; i < channels_.size(); ++i) {
    try {
      if (!channels_[i]->send(static_cast<uint32_t>(order), payload, kSendLimit))
        lose(i, "is gone");
    } catch (const net::FrameError& error) {
      lose(i, fmt::format("does not listen: {}", error.what()));
    }
  }
}

Expected<void> Followers::ask(RankOrder order, std::string_view payload) {
  const std::lock_guard lock(asking_);
  tell(order, payload);
  std::string failures;
  for (std::size_t i = 0; i < channels_.size(); ++i) {
    const auto frame = channels_[i]->receive();
    if (!frame) lose(i, "is gone");
    if (failures.empty() && !frame->payload.empty())
      failures = fmt::format("rank {} of the engine: {}", i + 1, frame->payload);
  }
  if (!failures.empty()) return failure(failures);
  return {};
}

}  // namespace slime::engine
