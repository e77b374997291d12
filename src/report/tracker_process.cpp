#include "report/tracker_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

#include "core/error.h"
#include "report/page.h"

extern char** environ;

namespace slime::report {
namespace {

constexpr int kStartMilliseconds =
    300'000;  // wandb.init talks to its server, mlflow makes a database
constexpr int kFinishMilliseconds = 60'000;
constexpr int kPipeBytes = 1 << 20;
constexpr const char* kDefaultProject = "slime";

std::string python() {
  const char* own = std::getenv("SLIME_PYTHON");
  return own != nullptr && *own != '\0' ? own : "python3";
}

json::object first_line(const std::string& tracker, const config::OutputFlags& config,
                        const std::string& run_dir, const json::object& settings) {
  json::object start{{"tracker", tracker},
                     {"run_dir", run_dir},
                     {"config", settings},
                     {"project", config.tracker_project.get()},
                     {"name", config.tracker_run_name.get()}};
  if (tracker != "wandb") {
    if (config.tracker_project.empty()) start["project"] = kDefaultProject;
    return start;
  }
  const auto first_of = [](const std::string& asked, const std::string& otherwise) {
    return asked.empty() ? otherwise : asked;
  };
  const std::string folder = first_of(config.wandb_dir, run_dir),
                    project = first_of(config.wandb_project, config.tracker_project),
                    name = first_of(config.tracker_run_name, config.wandb_group);
  start["host"] = config.wandb_host.get();
  start["key"] = config.wandb_key.get();
  start["suffix"] = config.tracker_run_name.empty() && !config.disable_wandb_random_suffix;
  start["options"] = json::object{{"project", project},
                                  {"entity", config.wandb_team.get()},
                                  {"group", config.wandb_group.get()},
                                  {"name", name},
                                  {"mode", config.wandb_mode.get()},
                                  {"dir", folder},
                                  {"id", config.wandb_run_id.get()}};
  return start;
}

void append_number(std::string& line, double number) {
  line += std::isfinite(number) ? fmt::format("{}", number) : "null";
}

std::string record_line(int64_t step, const Metrics& metrics, const StepDetails& details) {
  std::string line = fmt::format("{{\"step\": {}, \"metrics\": {{", step);
  for (const auto& [name, number] : metrics) {
    if (line.back() != '{') line += ", ";
    line += json_text(json::string(name)) + ": ";
    append_number(line, number);
  }
  json::array samples;
  for (const ShownSample& sample : details.samples) {
    const auto number = [](const std::optional<double>& value) {
      return value && std::isfinite(*value) ? json::value(*value) : json::value(nullptr);
    };
    samples.push_back({sample.ordinal, sample.status, number(sample.reward),
                       number(sample.advantage), sample.response_length, sample.prompt,
                       sample.response});
  }
  line += "}, \"samples\": " + json_text(samples) + ", \"distributions\": {";
  for (const Distribution& distribution : details.distributions) {
    if (line.back() != '{') line += ", ";
    line += json_text(json::string(distribution.name)) + ": {\"counts\": [";
    for (const double count : distribution.counts) {
      if (line.back() != '[') line += ", ";
      append_number(line, count);
    }
    line += "], \"edges\": [";
    append_number(line, distribution.min);
    for (const double limit : distribution.limits) {
      line += ", ";
      append_number(line, limit);
    }
    line += "]}";
  }
  return line + "}}\n";
}

/// A text of the child's JSON line; empty if it has none of that name.
std::string text_in(const std::string& line, std::string_view name) {
  const std::optional<json::value> parsed = try_parse_json(line);
  const json::object* object = parsed ? parsed->if_object() : nullptr;
  const json::value* text = object != nullptr ? object->if_contains(name) : nullptr;
  return text != nullptr && text->is_string() ? std::string(text->get_string()) : "";
}

void close_quietly(int& descriptor) {
  if (descriptor >= 0) ::close(descriptor);
  descriptor = -1;
}

}  // namespace

TrackerProcess::TrackerProcess(std::string tracker, const config::OutputFlags& config,
                               const std::string& run_dir, const json::object& settings, Tell tell)
    : tracker_(std::move(tracker)), tell_(std::move(tell)) {
  std::array<int, 2> in{}, out{};
  if (::pipe2(in.data(), O_CLOEXEC) != 0 || ::pipe2(out.data(), O_CLOEXEC) != 0)
    throw ConfigError(fmt::format("--report-to {}: no pipe: {}", tracker_, std::strerror(errno)));
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
  // A group of its own: Ctrl-C is for the run, which then closes the stream.
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  posix_spawnattr_setpgroup(&attributes, 0);
  const std::string program = python();
  std::string option = "-c", script(page_file("tracker.py"));
  std::array<char*, 4> words{const_cast<char*>(program.c_str()), option.data(), script.data(),
                             nullptr};
  pid_t child = -1;
  const int error =
      posix_spawnp(&child, program.c_str(), &actions, &attributes, words.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  ::close(in[0]);
  ::close(out[1]);
  to_child_ = in[1];
  from_child_ = out[0];
  if (error != 0) {
    close_quietly(to_child_);
    close_quietly(from_child_);
    throw ConfigError(fmt::format(
        "--report-to {0}: cannot start {1}: {2}; set SLIME_PYTHON to a Python that has {0}",
        tracker_, program, std::strerror(error)));
  }
  child_ = child;
  ::signal(SIGPIPE, SIG_IGN);  // a child that died is noticed by the write
  // More than a step's record, so that a tracker that is slow now and then costs no memory here.
  ::fcntl(to_child_, F_SETPIPE_SZ, kPipeBytes);
  ::fcntl(to_child_, F_SETFL, O_NONBLOCK);
  waiting_ = json_text(first_line(tracker_, config, run_dir, settings)) + "\n";
  while (!waiting_.empty() && to_child_ >= 0) {  // settings may be more than a pipe holds
    pollfd room{.fd = to_child_, .events = POLLOUT, .revents = 0};
    if (::poll(&room, 1, kStartMilliseconds) <= 0) break;
    const ssize_t written = ::write(to_child_, waiting_.data(), waiting_.size());
    if (written < 0 && errno != EINTR && errno != EAGAIN) break;
    if (written > 0) waiting_.erase(0, static_cast<std::size_t>(written));
  }
  const std::string answer = waiting_.empty() ? read_line(kStartMilliseconds) : "";
  if (text_in(answer, "is") == "ready") return;
  close_quietly(to_child_);
  close_quietly(from_child_);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  child_ = -1;
  throw ConfigError(tracker_problem(tracker_, text_in(answer, "why"), program));
}

TrackerProcess::~TrackerProcess() {
  const bool is_lost = to_child_ < 0;
  for (int waited = 0; to_child_ >= 0 && !waiting_.empty() && waited < kFinishMilliseconds;
       waited += 20) {
    tell_ = nullptr;  // whom it tells is gone
    send();
    if (to_child_ >= 0 && !waiting_.empty())
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  close_quietly(to_child_);
  if (child_ > 0) {
    const auto child = static_cast<pid_t>(child_);
    for (int waited = 0; ::waitpid(child, nullptr, WNOHANG) == 0; waited += 20) {
      if (is_lost || waited >= kFinishMilliseconds) {
        ::kill(child, SIGKILL);
        ::waitpid(child, nullptr, 0);
        break;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }
  close_quietly(from_child_);
}

std::string TrackerProcess::read_line(int milliseconds) {
  std::string line;
  pollfd coming{.fd = from_child_, .events = POLLIN, .revents = 0};
  while (!line.ends_with('\n')) {
    if (::poll(&coming, 1, milliseconds) <= 0) break;
    char letter = 0;
    if (::read(from_child_, &letter, 1) != 1) break;
    line += letter;
  }
  return line;
}

void TrackerProcess::lose(const std::string& why) {
  close_quietly(to_child_);
  waiting_ = {};
  if (tell_)
    tell_(
        fmt::format("--report-to {}: {}; the run goes on without it, and its numbers are in "
                    "metrics.jsonl",
                    tracker_, why));
}

void TrackerProcess::send() {
  while (!waiting_.empty()) {
    const ssize_t written = ::write(to_child_, waiting_.data(), waiting_.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno == EAGAIN) return;
    if (written < 0) {
      const std::string why = text_in(read_line(0), "why");
      return lose(why.empty() ? "its process has ended" : why);
    }
    waiting_.erase(0, static_cast<std::size_t>(written));
  }
}

void TrackerProcess::write(int64_t step, const Metrics& metrics, const StepDetails& details) {
  if (to_child_ < 0) return;
  waiting_ += record_line(step, metrics, details);
  send();
  if (waiting_.size() > kMostWaiting)
    lose(fmt::format("it has not read {} MiB of records", kMostWaiting >> 20));
}

std::string tracker_problem(const std::string& tracker, const std::string& why,
                            const std::string& python) {
  const std::string flag = "--report-to " + tracker;
  if (why.empty()) {
    return fmt::format(
        "{}: {} gave no answer; what it said is above. Set SLIME_PYTHON to a Python that has {}",
        flag, python, tracker);
  }
  if (why.find("No module named") != std::string::npos) {
    return fmt::format(
        "{}: {}: {}; `{} -m pip install {}`, or set SLIME_PYTHON to a Python that has it", flag,
        python, why, python, tracker);
  }
  std::string cure;
  if (tracker == "wandb")
    cure =
        "give a key (WANDB_API_KEY, --wandb-key), or use --wandb-mode offline and `wandb sync` "
        "later; ";
  if (tracker == "mlflow") cure = "MLFLOW_TRACKING_URI names the server or the store; ";
  return fmt::format("{}: {}; {}SLIME_PYTHON chooses another Python than {}", flag, why, cure,
                     python);
}

Metrics with_step_axes(const Metrics& metrics, int64_t plotted) {
  Metrics all = metrics;
  const auto has_group = [&](const std::string& group) {
    const auto found = metrics.lower_bound(group);
    return found != metrics.end() && found->first.starts_with(group);
  };
  if (has_group("rollout/") || has_group("perf/"))
    all["rollout/step"] = static_cast<double>(plotted);
  if (has_group("eval/")) all["eval/step"] = static_cast<double>(plotted);
  return all;
}

}  // namespace slime::report
