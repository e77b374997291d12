#include "report/wandb_process.h"

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
#include <thread>

#include "core/error.h"

extern char** environ;

namespace slime::report {
namespace {

constexpr int kStartMilliseconds = 120'000;  // wandb.init talks to its server
constexpr int kFinishMilliseconds = 60'000;

/// Reads one JSON record per line. Standard output is for our two words; wandb's goes to stderr.
constexpr const char* kScript = R"(
import json, os, random, string, sys
answers, sys.stdout = sys.stdout, sys.stderr
def say(word, **more):
    print(json.dumps({"is": word, **more}), file=answers, flush=True)
start = None
try:
    start = json.loads(sys.stdin.readline())
    os.environ.update(start["environment"])
    if start["key"]:
        os.environ["WANDB_API_KEY"] = start["key"]  # wandb.login would write it into ~/.netrc
    import wandb
    options = {k: v for k, v in start["options"].items() if v}
    if start["suffix"] and options.get("name") and not options.get("id"):
        options["name"] += "_" + "".join(random.choices(string.ascii_lowercase + string.digits, k=6))
    if options.get("id"):
        options["resume"] = "allow"
    run = wandb.init(config=start["config"], **options)
    for axis, groups in (("train", ["train"]), ("rollout", ["rollout", "perf", "multi_turn", "passrate", "phase"]),
                         ("eval", ["eval"])):
        wandb.define_metric(axis + "/step")
        for group in groups:
            wandb.define_metric(group + "/*", step_metric=axis + "/step")
    say("ready")
except BaseException as error:
    why = f"{type(error).__name__}: {error}"
    say("failed", why=why.replace(start["key"], "***") if start and start["key"] else why)
    sys.exit(1)
for line in sys.stdin:
    wandb.log({k: float("nan") if v is None else v for k, v in json.loads(line).items()})
wandb.finish()
)";

std::string python() {
  const char* own = std::getenv("SLIME_PYTHON");
  return own != nullptr && *own != '\0' ? own : "python3";
}

json::object first_line(const config::OutputFlags& config, const std::string& run_dir,
                        const json::object& settings) {
  const std::string folder = config.wandb_dir.empty() ? run_dir : config.wandb_dir;
  json::object environment;
  if (!config.wandb_host.empty()) environment["WANDB_BASE_URL"] = config.wandb_host.get();
  return {{"environment", environment},
          {"key", config.wandb_key},
          {"suffix", !config.disable_wandb_random_suffix},
          {"config", settings},
          {"options", json::object{{"project", config.wandb_project},
                                   {"entity", config.wandb_team},
                                   {"group", config.wandb_group},
                                   {"name", config.wandb_group},
                                   {"mode", config.wandb_mode},
                                   {"dir", folder},
                                   {"id", config.wandb_run_id}}}};
}

void close_quietly(int& descriptor) {
  if (descriptor >= 0) ::close(descriptor);
  descriptor = -1;
}

}  // namespace

WandbProcess::WandbProcess(const config::OutputFlags& config, const std::string& run_dir,
                           const json::object& settings) {
  std::array<int, 2> in{}, out{};
  if (::pipe2(in.data(), O_CLOEXEC) != 0 || ::pipe2(out.data(), O_CLOEXEC) != 0)
    throw ConfigError(fmt::format("--use-wandb: no pipe: {}", std::strerror(errno)));
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
  std::string option = "-c", script = kScript;
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
    throw ConfigError(
        fmt::format("--use-wandb: cannot start {}: {}; set SLIME_PYTHON to a Python "
                    "that has wandb",
                    program, std::strerror(error)));
  }
  child_ = child;
  ::signal(SIGPIPE, SIG_IGN);  // a child that died is noticed by the write
  const bool is_sent = send(json_text(first_line(config, run_dir, settings)) + "\n");
  const std::string answer = is_sent ? read_line() : "";
  json::error_code ignored;
  const json::value parsed = json::parse(answer, ignored);
  const json::object* object = parsed.if_object();
  if (object != nullptr && object->contains("is") && object->at("is") == "ready") return;
  const json::value* why = object == nullptr ? nullptr : object->if_contains("why");
  close_quietly(to_child_);
  close_quietly(from_child_);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  child_ = -1;
  throw ConfigError(wandb_problem(
      why != nullptr && why->is_string() ? std::string(why->get_string()) : "", program));
}

WandbProcess::~WandbProcess() {
  close_quietly(to_child_);
  if (child_ > 0) {
    const auto child = static_cast<pid_t>(child_);
    for (int waited = 0; ::waitpid(child, nullptr, WNOHANG) == 0; waited += 20) {
      if (waited >= kFinishMilliseconds) {
        ::kill(child, SIGKILL);
        ::waitpid(child, nullptr, 0);
        break;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }
  close_quietly(from_child_);
}

std::string WandbProcess::read_line() {
  std::string line;
  pollfd waiting{.fd = from_child_, .events = POLLIN, .revents = 0};
  while (!line.ends_with('\n')) {
    if (::poll(&waiting, 1, kStartMilliseconds) <= 0) break;
    char letter = 0;
    if (::read(from_child_, &letter, 1) != 1) break;
    line += letter;
  }
  return line;
}

bool WandbProcess::send(const std::string& line) {
  std::string_view rest = line;
  while (!rest.empty()) {
    const ssize_t written = ::write(to_child_, rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    rest.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

void WandbProcess::write(const Metrics& metrics) {
  if (to_child_ < 0) return;
  std::string line = "{";
  for (const auto& [name, number] : metrics) {
    if (line.size() > 1) line += ", ";
    line += json_text(json::string(name)) + ": ";
    line += std::isfinite(number) ? fmt::format("{}", number) : "null";
  }
  if (!send(line + "}\n")) close_quietly(to_child_);
}

std::string wandb_problem(const std::string& why, const std::string& python) {
  if (why.empty()) {
    return fmt::format(
        "--use-wandb: {} gave no answer; what it said is above. Set SLIME_PYTHON to a Python that "
        "has wandb",
        python);
  }
  if (why.find("No module named") != std::string::npos) {
    return fmt::format(
        "--use-wandb: {}: {}; `{} -m pip install wandb`, or set SLIME_PYTHON to a Python that has "
        "it",
        python, why, python);
  }
  return fmt::format(
      "--use-wandb: {}; give a key (WANDB_API_KEY, --wandb-key), or use --wandb-mode offline and "
      "`wandb sync` later; SLIME_PYTHON chooses another Python than {}",
      why, python);
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
