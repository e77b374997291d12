#include "plugin/host.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <utility>

#include "core/error.h"
#include "plugin/frame_types.h"

namespace slime::plugin {
namespace {

constexpr int kTickMilliseconds = 50;
constexpr std::size_t kCallsOfAFrame = 256;
/// A coroutine waits for something; a plain function holds up those behind it until it is late.
constexpr std::size_t kMostCoroutines = 1024;
constexpr std::size_t kMostPlainCalls = 32;
constexpr std::size_t kMostUnsent = std::size_t{1} << 20;
constexpr std::chrono::milliseconds kStandstill{900};  // of its event loop; it beats every 250
/// Of one that executes no call: nothing will come of it.
constexpr std::chrono::seconds kDeadStandstill{60};
constexpr std::chrono::duration<double> kFirstPause{0.1};
constexpr std::chrono::duration<double> kLongestPause{30};
constexpr int kMostDeaths = 5;
constexpr int kMostLateInHurry = 2;
constexpr std::size_t kMostPlaces = 100;

std::string late_text(const Call& call) {
  return fmt::format("the function took longer than {:g} s", call.timeout.count());
}

}  // namespace

Host::Host(HostConfig config)
    : config_(std::move(config)),
      log_(config_.logs / fmt::format("host-{}.log", config_.number)),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      replies_(std::make_shared<Replies>(wake_)) {
  check(wake_ >= 0, "there is a descriptor for an event");
  thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
}

int64_t Host::num_open_calls() const { return num_open_; }

Host::~Host() {
  thread_.request_stop();
  ::eventfd_write(wake_, 1);
  thread_.join();
  ::close(wake_);
}

void Host::call(Call call) {
  ++num_open_;
  bool is_first = false;
  {
    const std::lock_guard lock(mutex_);
    is_first = arrived_.empty();
    arrived_.push_back(std::move(call));
  }
  if (is_first) ::eventfd_write(wake_, 1);
}

void Host::set_aborted(bool is_aborted) {
  is_aborted_ = is_aborted;
  ::eventfd_write(wake_, 1);
}

void Host::tell_aborted() {
  const bool is_aborted = is_aborted_;
  if (std::exchange(told_aborted_, is_aborted) == is_aborted) return;
  send(kCancel, {.head = {{"ids", json::array()}, {"aborted", is_aborted}}});
}

void Host::tell_hurry() {
  if (told_hurry_ || !config_.hurries || !config_.hurries()) return;
  told_hurry_ = true;
  send(kCancel, {.head = {{"ids", json::array()}, {"hurries", true}}});
}

void Host::run(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    take_calls();
    const bool is_wanted = !has_started_ || !waiting_.empty();
    if (!process_ && !broken_ && is_wanted && Steady::now() >= start_at_) start();
    try {
      if (process_) send_replies();
      if (is_ready_) tell_aborted();
      if (is_ready_) tell_hurry();
      if (is_ready_) send_calls();
      wait();
      if (process_) read_frames();
    } catch (const net::FrameError& error) {
      die(error.what());
    }
    look_at_clock();
    while (broken_ && !waiting_.empty()) {
      fail(waiting_.front(), *broken_);
      waiting_.pop_front();
    }
  }
  process_.reset();
}

void Host::wait() {
  const bool has_rest = !unsent_.empty();
  pollfd all[] = {{.fd = wake_, .events = POLLIN, .revents = 0},
                  {.fd = process_ ? process_->channel().descriptor() : -1,
                   .events = static_cast<short>(has_rest ? POLLIN | POLLOUT : POLLIN),
                   .revents = 0},
                  {.fd = process_ ? process_->output() : -1, .events = POLLIN, .revents = 0}};
  ::poll(all, std::size(all), kTickMilliseconds);
  eventfd_t ignored = 0;
  if (all[0].revents != 0) ::eventfd_read(wake_, &ignored);
  if (!process_) return;
  if (all[1].revents & POLLOUT) write_rest();
  if (all[2].revents == 0) return;
  process_->read_output();
  if (has_output_ || log_.is_empty()) return;
  has_output_ = true;
  if (config_.on_output) config_.on_output(log_.file());
}

void Host::take_calls() {
  const std::lock_guard lock(mutex_);
  std::ranges::move(arrived_, std::back_inserter(waiting_));
  arrived_.clear();
}

void Host::start() {
  begun_ = looped_ = Steady::now();
  loop_count_ = -1;
  num_plain_in_flight_ = 0;
  ++num_processes_;
  told_aborted_ = told_hurry_ = false;
  try {
    abandoned_.clear();
    board_ = std::make_unique<CallBoard>();
    process_ = std::make_unique<HostProcess>(config_.python, log_, board_->descriptor());
  } catch (const ConfigError& error) {
    if (!has_started_) return give_up({error.what()});
    return die(error.what());
  }
  json::array hooks;
  for (const Hook& hook : config_.hooks)
    hooks.push_back(json::object{{"hook", hook.hook}, {"path", hook.path}});
  send(kConfigure, {.head = {{"protocol", kProtocol},
                             {"args", config_.flags},
                             {"hooks", std::move(hooks)},
                             {"board", board_->layout()},
                             {"paths", json::array()}}});
}

void Host::send(uint32_t type, const Payload& payload) {
  const std::string bytes = encode(payload);
  const uint64_t length = bytes.size();
  unsent_ += "SLMF";
  unsent_.append(reinterpret_cast<const char*>(&type), sizeof type);
  unsent_.append(reinterpret_cast<const char*>(&length), sizeof length);
  unsent_ += bytes;
  write_rest();
}

/// What the host does not take now is sent later: its functions may be in no hurry.
void Host::write_rest() {
  std::size_t sent = 0;
  while (sent < unsent_.size()) {
    const ssize_t count = ::send(process_->channel().descriptor(), unsent_.data() + sent,
                                 unsent_.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) break;  // full, or closed, which reading notices
    sent += static_cast<std::size_t>(count);
  }
  unsent_.erase(0, sent);
}

void Host::send_calls() {
  while (unsent_.size() < kMostUnsent) {
    Payload payload;
    json::array calls;
    while (!waiting_.empty() && in_flight_.size() < kMostCoroutines &&
           calls.size() < kCallsOfAFrame && may_send(waiting_.front())) {
      const std::optional<int> slot = board_->take_slot();
      if (!slot) {
        die("the plug-in host had thousands of calls that did not end when they were cancelled");
        return;
      }
      Call call = std::move(waiting_.front());
      waiting_.pop_front();
      json::object arguments = call.arguments(payload.columns);
      arguments["id"] = next_id_;
      arguments["hook"] = call.hook;
      arguments["slot"] = *slot;
      arguments["seconds"] = call.timeout.count();
      calls.push_back(std::move(arguments));
      const auto patient = patient_until(call);
      if (!is_coroutine_[static_cast<std::size_t>(call.hook)]) ++num_plain_in_flight_;
      in_flight_.emplace(next_id_++, InFlight{std::move(call), *slot, patient});
    }
    if (calls.empty()) return;
    payload.head["calls"] = std::move(calls);
    send(kCalls, payload);
  }
}

bool Host::may_send(const Call& call) const {
  return is_coroutine_[static_cast<std::size_t>(call.hook)] ||
         num_plain_in_flight_ < kMostPlainCalls;
}

void Host::send_replies() {
  for (Reply& reply : replies_->take()) {
    if (reply.process != num_processes_) continue;  // who asked is gone
    json::object word{{"id", reply.id}};
    Columns columns;
    if (reply.value) {
      word["value"] = std::move(reply.value->value);
      columns = std::move(reply.value->columns);
    } else {
      word["error"] = reply.value.error().message;
    }
    send(kReplies,
         {.head = {{"replies", json::array{std::move(word)}}}, .columns = std::move(columns)});
  }
}

void Host::read_frames() {
  const bool is_open = process_->channel().read_available();
  while (process_) {
    const std::optional<net::Frame> frame = process_->channel().next();
    if (!frame) break;
    take_frame(*frame);
  }
  if (!is_open && process_) {
    process_->read_output();
    die("");
  }
}

void Host::take_frame(const net::Frame& frame) {
  const Payload payload = decode(frame.payload);
  switch (frame.type) {
    case kReady:
      return take_ready(payload.head);
    case kAnswers:
      for (const json::value& answer : list_of(payload.head, "answers"))
        take_answer(object_of(answer), payload.columns);
      return;
    case kBeat: {
      const json::value* count = payload.head.if_contains("loop");
      if (count == nullptr || !count->is_int64() || count->get_int64() == loop_count_) return;
      loop_count_ = count->get_int64();
      looped_ = Steady::now();
      return;
    }
    case kAsks:
      return take_questions(payload.head, payload.columns);
    default:
      throw net::FrameError(fmt::format("it sent a frame of type {}", frame.type));
  }
}

void Host::take_ready(const json::object& head) {
  const std::vector<std::string> problems = problems_of(head);
  if (!problems.empty()) {
    if (!has_started_) return give_up(problems);
    return die(problems.front());
  }
  const json::array& hooks = list_of(head, "hooks");
  if (hooks.size() != config_.hooks.size()) throw net::FrameError("it is ready for other hooks");
  is_coroutine_.clear();
  for (const json::value& each : hooks) {
    const json::value* is_coroutine = object_of(each).if_contains("is_coroutine");
    is_coroutine_.push_back(is_coroutine != nullptr && is_coroutine->is_bool() &&
                            is_coroutine->get_bool());
  }
  if (!has_started_ && config_.number == 0)  // which has all hooks
    for (const std::string& note : notes_of(head)) tell(note);
  is_ready_ = true;
  looped_ = Steady::now();
  if (!std::exchange(has_started_, true)) started_.set_value({});
}

void Host::take_answer(const json::object& answer, const Columns& columns) {
  const auto found = in_flight_.find(id_of(answer));
  if (found == in_flight_.end()) {  // late, and counted as failed; or told twice
    if (const auto abandoned = abandoned_.extract(id_of(answer)))
      board_->release_slot(abandoned.mapped().slot);
    return;
  }
  const json::value* error = answer.if_contains("error");
  const json::value* value = answer.if_contains("value");
  if (error == nullptr && (value == nullptr || !value->is_object()))
    throw net::FrameError("an answer without value");
  if (error != nullptr) object_of(*error);
  looped_ = Steady::now();
  deaths_in_row_ = 0;
  Call call = std::move(found->second.call);
  board_->release_slot(found->second.slot);
  in_flight_.erase(found);
  if (!is_coroutine_[static_cast<std::size_t>(call.hook)]) --num_plain_in_flight_;
  if (error == nullptr) return finish(call, Answer{value->get_object(), columns});
  const json::object& what = error->get_object();
  const std::string type = text_of(what, "type");
  const std::string place = text_of(what, "place");
  if (type == "TimeoutError" && text_of(what, "message") == "later than its deadline")
    return fail(call, late_text(call));
  const std::string message = text_of(what, "message");
  const std::string reason = message.empty() ? type : fmt::format("{}: {}", type, message);
  // Of a late or cancelled call nobody knows the place.
  if (!place.empty() && places_.size() < kMostPlaces && ++places_[place] == 1)
    tell(fmt::format("{}: {}", call.subject, text_of(what, "traceback")));
  fail(call, place.empty() ? reason : fmt::format("{} ({})", reason, place));
}

void Host::take_questions(const json::object& head, const Columns& columns) {
  for (const json::value& each : list_of(head, "asks")) {
    const json::object& ask = object_of(each);
    const int64_t id = id_of(ask);
    ReplyFn reply = [replies = replies_, process = num_processes_, id](Expected<ReplyValue> value) {
      replies->add({.process = process, .id = id, .value = std::move(value)});
    };
    Question question{.what = text_of(ask, "what"), .arguments = ask, .columns = columns};
    if (config_.on_question) {
      config_.on_question(std::move(question), std::move(reply));
    } else {
      reply(failure(fmt::format("the program does not answer {} here", question.what)));
    }
  }
}

void Host::look_at_clock() {
  drop_stopped();
  if (!process_) return;
  const std::string too_much = process_->over_limit(config_.memory_bytes);
  if (!too_much.empty()) return die(too_much + ", and was killed");
  hurry();
  const auto now = Steady::now();
  if (!is_ready_) {
    if (now - begun_ > config_.start_timeout)
      die(fmt::format("was not ready after {:g} s", config_.start_timeout.count()));
    return;
  }
  const bool stands_still = now - looped_ > kStandstill;
  for (auto at = in_flight_.begin(); at != in_flight_.end();) {
    if (!is_late(at->first, at->second, now)) {
      ++at;
      continue;
    }
    const Call& call = at->second.call;
    const std::string why = is_hurried_ ? "the function did not return" : late_text(call);
    if (is_stuck(at->first, now) || (is_hurried_ && stands_still)) {
      const std::string subject = call.subject;
      die(why + " and let nothing else go on in its host, which was killed", at->first);
      if (is_hurried_ && ++num_late_in_hurry_ >= kMostLateInHurry && config_.on_stuck)
        config_.on_stuck(fmt::format("{}: {}", subject, why));
      return;
    }
    fail(at->second.call, why);
    at = abandon(at);
  }
  if (end_stuck_leftover(now)) return;
  if (!in_flight_.empty() && now - looped_ > kDeadStandstill && board_->executing().empty())
    die(fmt::format("the plug-in host stood still for {} s without running a function",
                    kDeadStandstill.count()));
}

/// Its answer is not waited for any more.
Host::Calls::iterator Host::abandon(Calls::iterator which) {
  abandoned_.emplace(which->first, Leftover{which->second.slot, which->second.call.timeout});
  if (!is_coroutine_[static_cast<std::size_t>(which->second.call.hook)]) --num_plain_in_flight_;
  return in_flight_.erase(which);
}

void Host::drop_stopped() {
  const auto is_stopped = [](const Call& call) { return call.stop.stop_requested(); };
  num_open_ -= static_cast<int64_t>(std::erase_if(waiting_, is_stopped));
  json::array ids;
  for (auto at = in_flight_.begin(); at != in_flight_.end();) {
    if (!is_stopped(at->second.call)) {
      ++at;
      continue;
    }
    ids.emplace_back(at->first);
    at = abandon(at);
    --num_open_;
  }
  if (!ids.empty() && process_) send(kCancel, {.head = {{"ids", std::move(ids)}}});
}

/// `why`: empty when it ended by itself. `culprit`: for whose sake it was killed; 0: the board says.
void Host::die(const std::string& why, int64_t culprit) {
  std::string reason = why;
  if (process_) {
    const std::string ending = process_->end(/*waits=*/why.empty());
    if (reason.empty()) reason = fmt::format("the plug-in host {}", ending);
    take_last_answers();
  }
  std::vector<int64_t> culprits = board_->executing();
  if (culprit != 0) culprits = {culprit};
  process_.reset();
  unsent_.clear();
  is_ready_ = false;
  const std::string tail = log_.tail();
  const std::string told =
      tail.empty() ? reason
                   : fmt::format("{}; the end of {}:\n{}", reason, log_.file().string(), tail);
  if (!has_started_) {
    return give_up({start_failure(config_.python, told, tail)});
  }
  const std::string running = subjects_of(culprits);
  tell(fmt::format("plug-in host {}{}: {}", config_.number,
                   running.empty() ? "" : fmt::format(", in the call for {}", running), told));
  ++deaths_in_row_;
  const std::chrono::duration<double> pause =
      std::min(kFirstPause * std::exp2(std::max(deaths_in_row_ - 1, 0)), kLongestPause);
  start_at_ = Steady::now() + std::chrono::duration_cast<Steady::duration>(pause);
  end_calls(culprits, reason);
  if (deaths_in_row_ >= kMostDeaths) {
    broken_ = fmt::format("{} plug-in hosts in a row ended without an answer, the last: {}",
                          deaths_in_row_, reason);
  }
}

/// It never worked.
void Host::give_up(const std::vector<std::string>& problems) {
  process_.reset();
  has_started_ = true;
  broken_ = problems.front();
  started_.set_value(problems);
}

void Host::finish(Call& call, const Expected<Answer>& answer) {
  --num_open_;
  if (!call.stop.stop_requested()) call.answer(answer);
}

void Host::fail(Call& call, const std::string& why) { finish(call, failure(why)); }

void Host::tell(const std::string& text) const {
  if (config_.tell) config_.tell(text);
}

}  // namespace slime::plugin
