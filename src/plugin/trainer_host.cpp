#include "plugin/trainer_host.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "core/error.h"
#include "plugin/frame_types.h"

namespace slime::plugin {
namespace {

/// The host itself says that a coroutine is late; a plain function holds it up until it is killed.
constexpr std::chrono::milliseconds kLateGrace{500};
constexpr std::size_t kMostDescriptors = 16;  // of one frame

std::filesystem::path made(const std::filesystem::path& folder) {
  std::filesystem::create_directories(folder);
  return folder;
}

std::string frame_head(uint32_t type, uint64_t length) {
  std::string head = "SLMF";
  head.append(reinterpret_cast<const char*>(&type), sizeof type);
  head.append(reinterpret_cast<const char*>(&length), sizeof length);
  return head;
}

}  // namespace

TrainerHost::TrainerHost(TrainerHostConfig config)
    : config_(std::move(config)),
      log_(made(config_.logs) / fmt::format("trainer-{}.log", config_.rank)) {
  configure();
}

TrainerHost::~TrainerHost() {
  if (process_) process_->read_output();
}

void TrainerHost::configure() {
  process_ = std::make_unique<HostProcess>(config_.python, log_);
  limit_ = config_.start_timeout;
  deadline_ = Steady::now() + std::chrono::duration_cast<Steady::duration>(limit_);
  json::array hooks;
  for (const Hook& hook : config_.hooks)
    hooks.push_back(json::object{{"hook", hook.hook}, {"path", hook.path}});
  json::object ready;
  try {
    send(kConfigure, {.head = {{"protocol", kProtocol},
                               {"args", config_.flags},
                               {"hooks", std::move(hooks)},
                               {"paths", json::array()}}});
    const net::Frame frame = receive();
    if (frame.type != kReady) throw net::FrameError("it is not ready");
    ready = decode(frame.payload).head;
  } catch (const FunctionError& error) {
    throw ConfigError(start_failure(config_.python, error.what(), log_.tail()));
  } catch (const net::FrameError& error) {
    throw ConfigError(start_failure(config_.python, error.what(), log_.tail()));
  }
  const std::vector<std::string> problems = problems_of(ready);
  if (!problems.empty()) throw ConfigError(fmt::format("{}", fmt::join(problems, "\n")));
}

int64_t TrainerHost::announce(Announced memory) {
  memory.number = next_memory_;
  announced_.push_back(memory);
  check(announced_.size() <= kMostDescriptors, "few memories are made between two calls");
  return next_memory_++;
}

int64_t TrainerHost::share(const SharedMemory& memory) {
  return announce({.bytes = memory.bytes(), .descriptor = memory.descriptor(), .device = {}});
}

int64_t TrainerHost::share(int64_t bytes, int descriptor, int device) {
  return announce({.bytes = bytes, .descriptor = descriptor, .device = device});
}

std::vector<int> TrainerHost::take_announced(json::object& head) {
  std::vector<int> descriptors;
  if (announced_.empty()) return descriptors;
  json::array memory;
  for (const Announced& each : announced_) {
    json::object word{{"id", each.number}, {"bytes", each.bytes}};
    if (each.device) word["device"] = *each.device;
    memory.push_back(std::move(word));
    descriptors.push_back(each.descriptor);
  }
  head["memory"] = std::move(memory);
  announced_.clear();
  return descriptors;
}

void TrainerHost::forget(int64_t number) {
  const bool was_announced =
      std::erase_if(announced_, [&](const Announced& each) { return each.number == number; }) > 0;
  if (!was_announced) forgotten_.push_back(number);
}

void TrainerHost::release(int64_t number) {
  forget(number);
  if (!process_) return;
  doing_ = "a plug-in host that gives memory back";
  exchange({{"release", true}}, {});
}

TrainerHost::Returned TrainerHost::call(int hook, const std::string& subject,
                                        json::object arguments, const AnswerFn& answer) {
  const Hook& called = config_.hooks.at(static_cast<std::size_t>(hook));
  doing_ = fmt::format("{} function {}{}{}", called.hook, called.path, subject.empty() ? "" : ", ",
                       subject);
  arguments["hook"] = hook;
  return exchange(std::move(arguments), answer);
}

TrainerHost::Returned TrainerHost::exchange(json::object call, const AnswerFn& answer) {
  if (!process_) throw FunctionError(doing_ + ": its plug-in host has ended");
  settle_();
  limit_ = config_.timeout;
  deadline_ = Steady::now() + std::chrono::duration_cast<Steady::duration>(limit_) + kLateGrace;
  const int64_t id = next_call_++;
  call["id"] = id;
  call["seconds"] = limit_.count();
  Payload payload{.head = {{"calls", json::array{std::move(call)}}}};
  const std::vector<int> descriptors = take_announced(payload.head);
  if (!forgotten_.empty()) payload.head["forget"] = json::value_from(forgotten_);
  forgotten_.clear();
  try {
    send(kCalls, payload, descriptors);
    for (;;) {
      Payload came = decode(receive().payload);
      if (came.head.contains("asks")) {
        answer_questions(came.head, answer);
        continue;
      }
      for (const json::value& each : list_of(came.head, "answers")) {
        const json::object& own = object_of(each);
        if (id_of(own) != id) continue;
        if (const json::value* error = own.if_contains("error")) {
          const json::object& what = object_of(*error);
          const std::string place = text_of(what, "place");
          const std::string trace = text_of(what, "traceback");
          fail(fmt::format("{}: {}{}{}", text_of(what, "type"), text_of(what, "message"),
                           place.empty() ? "" : fmt::format(" ({})", place),
                           // Without a place it has nothing of the user's in it.
                           place.empty() || trace.empty() ? "" : "\n" + trace));
        }
        const json::value* value = own.if_contains("value");
        if (value == nullptr) throw net::FrameError("an answer without value");
        process_->read_output();  // what it printed before it answered
        return {id, object_of(*value), std::move(came.columns)};
      }
    }
  } catch (const net::FrameError& error) {
    die(fmt::format("its plug-in host sent something odd: {}", error.what()));
  }
}

void TrainerHost::answer_questions(const json::object& head, const AnswerFn& answer) {
  json::array replies;
  std::vector<int> descriptors;
  for (const json::value& each : list_of(head, "asks")) {
    const json::object& ask = object_of(each);
    const std::string what = text_of(ask, "what");
    json::object reply{{"id", id_of(ask)}};
    if (answer && what == "logits") {
      json::object value = answer(what);
      settle_();
      const std::vector<int> more = take_announced(value);
      descriptors.insert(descriptors.end(), more.begin(), more.end());
      reply["value"] = std::move(value);
    } else {
      reply["error"] = fmt::format("a trainer's host has no {}", what);
    }
    replies.push_back(std::move(reply));
  }
  send(kReplies, {.head = {{"replies", std::move(replies)}}}, descriptors);
}

void TrainerHost::send(uint32_t type, const Payload& payload, const std::vector<int>& descriptors) {
  const std::string body = encode(payload);
  const std::string bytes = frame_head(type, body.size()) + body;
  // Descriptors travel with the first byte of their frame.
  alignas(cmsghdr) char control[CMSG_SPACE(kMostDescriptors * sizeof(int))] = {};
  std::size_t sent = 0;
  while (sent < bytes.size()) {
    iovec part{.iov_base = const_cast<char*>(bytes.data() + sent), .iov_len = bytes.size() - sent};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    if (sent == 0 && !descriptors.empty()) {
      const std::size_t size = descriptors.size() * sizeof(int);
      message.msg_control = control;
      message.msg_controllen = CMSG_SPACE(size);
      cmsghdr* rights = CMSG_FIRSTHDR(&message);
      rights->cmsg_level = SOL_SOCKET;
      rights->cmsg_type = SCM_RIGHTS;
      rights->cmsg_len = CMSG_LEN(size);
      std::memcpy(CMSG_DATA(rights), descriptors.data(), size);
    }
    const ssize_t count =
        ::sendmsg(process_->channel().descriptor(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count >= 0) {
      sent += static_cast<std::size_t>(count);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      wait(POLLOUT);
    } else if (errno != EINTR) {
      die("");
    }
  }
}

net::Frame TrainerHost::receive() {
  for (;;) {
    const bool is_open = process_->channel().read_available();
    while (auto frame = process_->channel().next()) {
      if (frame->type != kBeat) return std::move(*frame);
    }
    if (!is_open) die("");
    wait(POLLIN);
  }
}

void TrainerHost::wait(short events) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline_ - Steady::now()).count();
  if (left <= 0) {
    die(fmt::format("it took longer than {:g} s{}", limit_.count(),
                    doing_.empty() ? "" : " (--plugin-timeout-seconds)"));
  }
  pollfd all[] = {{.fd = process_->channel().descriptor(), .events = events, .revents = 0},
                  {.fd = process_->output(), .events = POLLIN, .revents = 0}};
  ::poll(all, std::size(all), static_cast<int>(std::min<int64_t>(left, 60'000)));
  if (all[1].revents != 0) process_->read_output();
}

void TrainerHost::fail(const std::string& why) {
  process_->read_output();
  throw FunctionError(doing_.empty() ? why : doing_ + ": " + why);
}

/// `why`: empty when the host ended by itself.
void TrainerHost::die(const std::string& why) {
  const std::string ending = process_->end(/*waits=*/true);
  std::string reason = why.empty() ? fmt::format("the plug-in host {}", ending) : why;
  process_.reset();
  if (const std::string tail = log_.tail(); !tail.empty())
    reason += fmt::format("; the end of {}:\n{}", log_.file().string(), tail);
  throw FunctionError(doing_.empty() ? reason : doing_ + ": " + reason);
}

}  // namespace slime::plugin
