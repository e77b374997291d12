// When a call is late, and what becomes of the calls of a host that has died.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "plugin/frame_types.h"
#include "plugin/host.h"

namespace slime::plugin {
namespace {

/// The host itself cancels what is late; this much later it should have said so.
constexpr std::chrono::milliseconds kGrace{1000};
constexpr std::size_t kMostSubjects = 3;
/// Shorter steps come to an end by themselves, such as those that a cancelled call ends with.
constexpr std::chrono::milliseconds kStuckStep{500};
/// For what was cancelled and had no deadline of its own.
constexpr std::chrono::seconds kLeftoverPatience{60};

}  // namespace

Host::Steady::time_point Host::patient_until(const Call& call) const {
  const bool is_reward = config_.hooks[static_cast<std::size_t>(call.hook)].hook == "reward";
  if (!is_hurried_ || !is_reward) return Steady::time_point::max();
  return Steady::now() + std::chrono::duration_cast<Steady::duration>(config_.patience) + kGrace;
}

void Host::hurry() {
  if (is_hurried_ || !config_.hurries || !config_.hurries()) return;
  is_hurried_ = true;
  for (auto& [id, each] : in_flight_) each.patient_until = patient_until(each.call);
}

bool Host::is_late(int64_t id, const InFlight& each, Steady::time_point now) const {
  if (now >= each.patient_until) return true;
  if (each.call.timeout <= each.call.timeout.zero()) return false;
  const auto time = board_->time_of(id, each.slot, now);
  return time && *time > each.call.timeout + kGrace;
}

bool Host::is_stuck(int64_t id, Steady::time_point now) const {
  return board_->holds_for(id, now) > kStuckStep;
}

/// A call that was given up and holds up all others has no longer than any call.
bool Host::end_stuck_leftover(Steady::time_point now) {
  for (const auto& [id, leftover] : abandoned_) {
    if (!is_stuck(id, now)) continue;
    const std::chrono::duration<double> limit =
        leftover.timeout > leftover.timeout.zero() ? leftover.timeout : kLeftoverPatience;
    const auto time = board_->time_of(id, leftover.slot, now);
    if (!time || *time <= limit + kGrace) continue;
    die(fmt::format("a function that was cancelled held up its host for longer than {:g} s, which "
                    "was killed",
                    limit.count()),
        id);
    return true;
  }
  return false;
}

/// What the process had sent or computed when it ended.
void Host::take_last_answers() {
  const auto take = [this](const net::Frame& frame) {
    if (frame.type == kAnswers) take_frame(frame);
  };
  try {
    bool is_open = true, has_more = true;
    while (is_open && has_more) {
      has_more = false;
      is_open = process_->channel().read_available();
      while (const std::optional<net::Frame> frame = process_->channel().next()) {
        take(*frame);
        has_more = true;
      }
    }
    for (const net::Frame& frame : board_->unsent_answers()) take(frame);
  } catch (const net::FrameError&) {
    // What is left was being written when it died.
  }
}

/// "sample 7, sample 9 and 3 more": whom these calls were made for.
std::string Host::subjects_of(const std::vector<int64_t>& ids) const {
  std::vector<std::string> subjects;
  for (const int64_t id : ids) {
    if (const auto found = in_flight_.find(id); found != in_flight_.end())
      subjects.push_back(found->second.call.subject);
  }
  const std::size_t shown = std::min(subjects.size(), kMostSubjects);
  const std::size_t more = subjects.size() - shown;
  subjects.resize(shown);
  return fmt::format("{}{}", fmt::join(subjects, ", "),
                     more == 0 ? "" : fmt::format(" and {} more", more));
}

void Host::end_calls(const std::vector<int64_t>& culprits, const std::string& reason) {
  const auto now = Steady::now();
  const std::string running = subjects_of(culprits);
  std::deque<Call> again;
  for (auto& [id, each] : std::exchange(in_flight_, {})) {
    const bool has_begun = board_->time_of(id, each.slot, now).has_value();
    const bool is_lost = has_begun && std::ranges::find(culprits, id) == culprits.end();
    if (is_hurried_ || (has_begun && !is_lost)) {
      fail(each.call, reason);
    } else if (!is_lost || (config_.repeats_lost_calls && !each.call.is_repeated)) {
      each.call.is_repeated = each.call.is_repeated || is_lost;
      again.push_back(std::move(each.call));
    } else {
      fail(each.call,
           fmt::format("{}{} while this call waited, and it may not be made twice", reason,
                       running.empty() ? "" : fmt::format(" in the call for {}", running)));
    }
  }
  waiting_.insert(waiting_.begin(), std::move_iterator(again.begin()),
                  std::move_iterator(again.end()));
}

}  // namespace slime::plugin
