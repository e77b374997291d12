// When a call is late, and who is to blame for a host's death: calls that it had are made again in a host of
// their own.

#include <sys/eventfd.h>
#include <algorithm>
#include <iterator>
#include <utility>

#include "plugin/host.h"

namespace slime::plugin {
namespace {

/// The host itself cancels what is late; this much later it should have said so.
constexpr std::chrono::milliseconds kGrace{1000};

}  // namespace

Host::Steady::time_point Host::late_at(const Call& call) const {
  const auto now = Steady::now();
  const auto timeout = std::chrono::duration_cast<Steady::duration>(call.timeout);
  const auto late =
      timeout > Steady::duration::zero() ? now + timeout + kGrace : Steady::time_point::max();
  const bool is_reward = config_.hooks[static_cast<std::size_t>(call.hook)].hook == "reward";
  const auto patience = std::chrono::duration_cast<Steady::duration>(config_.patience);
  return is_hurried_ && is_reward ? std::min(late, now + patience + kGrace) : late;
}

void Host::hurry() {
  if (is_hurried_ || !config_.hurries || !config_.hurries()) return;
  is_hurried_ = true;
  for (auto& [id, each] : in_flight_) each.late = std::min(each.late, late_at(each.call));
}

/// Of the examiner, by the host whose calls they were.
void Host::take_suspects(std::vector<Call> suspects) {
  num_open_ += static_cast<int64_t>(suspects.size());
  const std::lock_guard lock(mutex_);
  arrived_suspects_.push_back(std::move(suspects));
  ::eventfd_write(wake_, 1);
}

/// Those that were in a host when it died. Of one there is nothing to find out.
void Host::examine(std::vector<Call> suspects) {
  num_open_ -= static_cast<int64_t>(suspects.size());
  const std::lock_guard lock(mutex_);
  if (!examiner_) {
    HostConfig config = config_;
    config.finds_culprits = true;
    examiner_ = std::make_unique<Host>(std::move(config));
    if (is_aborted_) examiner_->set_aborted(true);
  }
  examiner_->take_suspects(std::move(suspects));
}

/// A half at a time: all together they would bring it down again.
void Host::call_again(std::vector<Call> suspects) {
  const auto middle = suspects.begin() + static_cast<std::ptrdiff_t>((suspects.size() + 1) / 2);
  if (middle != suspects.end())
    suspects_.emplace_front(std::move_iterator(middle), std::move_iterator(suspects.end()));
  suspects_.emplace_front(std::move_iterator(suspects.begin()), std::move_iterator(middle));
}

void Host::blame_one_of(Calls had) {
  std::vector<Call> suspects;
  for (auto& [id, each] : had) suspects.push_back(std::move(each.call));
  if (!config_.finds_culprits) return examine(std::move(suspects));
  // Those of this half that were not called yet are no suspects, and wait for their turn.
  if (!waiting_.empty()) suspects_.push_front(std::exchange(waiting_, {}));
  call_again(std::move(suspects));
}

}  // namespace slime::plugin
